"""Trace files made by hand, in the shape of each public format."""

from __future__ import annotations

import json

AZURE_2023 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:00:00.1000000,100,10\r\n"
    "2023-11-16 18:00:00.1000010,200,20\r\n"
    "2023-11-16 18:00:02.6000000,300,30"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-12 00:00:00.001163+00:00,100,10\n"
    "2024-05-12 00:00:01+00:00,200,20\n"
    "2024-05-12T00:00:02.5Z,300,30\n"
    "2024-05-12 02:00:03+02:00,400,40\n"
)
AZURE_2025 = (
    "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n"
    "2024-10-15T12:00:00.269Z,3,100,10\n"
    "2024-10-15T12:00:01.269Z,0,200,20\n"
)
BURSTGPT_1 = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,0,0,0,API log\n"
    "45,ChatGPT,30,0,30,API log\n"
    "45,GPT-4,1087,230,1317,Conversation log\n"
    "45,ChatGPT,20,7,27,API log\n"
    "118,ChatGPT,417,276,693,Conversation log\n"
)
BURSTGPT_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "19440110.0,1722ac82-0a46-4bf0-aa08-89794e7a2b3f,43,GPT-4,906,446,1352,Conversation log\n"
    "19440161.0,,0,ChatGPT,36,29,65,API log\n"
    "19440161.0,d5983bf9-4b48-497b-892b-a58995247443,2,ChatGPT,0,0,0,Conversation log\n"
)
MOONCAKE_ROWS = [
    {"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]},
    {"timestamp": 1500, "input_length": 1024, "output_length": 6, "hash_ids": [0, 1]},
    {"timestamp": 1500, "input_length": 3, "output_length": 7, "hash_ids": [9]},
]
MOONCAKE = "".join(json.dumps(row) + "\n" for row in MOONCAKE_ROWS)
QWEN = (
    '{"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.25, "input_length": 17, '
    '"output_length": 5, "type": "text", "turn": 1, "hash_ids": [1, 2]}\n'
    '{"chat_id": 2, "parent_chat_id": 1, "timestamp": 61.75, "input_length": 33, '
    '"output_length": 6, "type": "text", "turn": 2, "hash_ids": [1, 2, 3]}\n'
)
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"
VIDUR_LENGTHS = (
    "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"
    "3772,54,3826,69.85\n2015,156,2171,12.9\n40,4,44,10.0\n"
)
GENERIC_CSV = (
    "output_tokens,arrival_time_s,comment,prompt_tokens,priority,service_class,"
    "predicted_output_tokens\n"
    '5,0.5,"a, b",10,2.5,batch,6.5\n'
    "6,0.75,,20,,,\n"
    "7,1,x,30,-1,0,7\n"
)
SERVEGEN_TRACE = (
    "0,0,0,,0,0\r\n"
    "600,2.0,1.0,Gamma,1.0,0.9\r\n"
    "1200,0.5,2.2,Weibull,0.5,4.0\r\n"
    "1800,1.0,1.0,,0,0\r\n"
)
SERVEGEN_DATASET = json.dumps(
    {
        "0": {"input_tokens": "{10: 0.25, 20: 0.75}", "output_tokens": "{3: 0.5, 4: 0.5}"},
        "1200": {
            "input_tokens": "{7: 1.0}",
            "output_tokens": "{8: 2.0}",
            "reason_ratio": "{0.5: 1.0}",
        },
        "1800": {"input_tokens": "{}", "output_tokens": "{}"},
    },
    indent=2,
)
