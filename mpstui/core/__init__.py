"""Values and pure rules: no I/O, and nothing else of mpstui is imported here."""
