"""Figures from tables; statistics and drawing do not mix."""
