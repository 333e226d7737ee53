"""Starting and stopping control daemons, and the texts with which other programs do it."""
