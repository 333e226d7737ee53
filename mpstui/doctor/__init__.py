"""Checks of a node's MPS set-up: facts are gathered once, each check is a function over them; nothing is changed."""
