"""Discovery, NVML and /proc."""
