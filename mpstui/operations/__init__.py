"""What mpstui can change: one registry of actions with its safety rules and the audit log."""
