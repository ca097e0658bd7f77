"""Several processes: one sample for each (DDP), uneven inputs (Join), sharded parameters (FSDP2)."""
