"""What stored studies share: routed reads, small models, claims, measuring again, docs/measured.md."""
