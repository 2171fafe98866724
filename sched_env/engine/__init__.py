"""What a server does: the compiled core, one implementation of each rule."""
