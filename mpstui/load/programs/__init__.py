"""Programs that experiments run with whichever Python has what they need. They are scripts: their folder comes first
where they look for modules, so that nothing else may be in it."""
