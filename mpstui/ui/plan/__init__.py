"""The plan screen: a GPU divided among tenants, beside what is, applied, handed over and kept."""
