"""Where a Chromium is, for tests of the page."""

import pathlib
import shutil

_BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "chromium-headless-shell", "chrome-headless-shell", "headless_shell",
)  # fmt: skip
_INSTALLED = (".cache/ms-playwright/chromium*/chrome-linux*/*", ".cache/puppeteer/*/*/*/*")


def find():
    """Returns a Chromium's path, None where there is none."""
    paths = [shutil.which(name) for name in _BROWSERS]
    home = pathlib.Path.home()
    below = [p for pattern in _INSTALLED for p in home.glob(pattern) if p.name in _BROWSERS]
    return next((path for path in [*paths, *map(str, below)] if path), None)
