"""What stored studies share: recovered quality, measuring again, docs/measured.md."""
