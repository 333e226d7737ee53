"""The screen of the control daemons: what runs, starting another one, stopping one."""
