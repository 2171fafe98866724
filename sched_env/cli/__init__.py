"""The command line: one module per verb, loaded only when its verb is used."""
