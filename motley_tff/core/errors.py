"""Errors."""
class UserError(Exception):
    exit_status = 2
