"""Trained groups beside their controls (Focus)."""
