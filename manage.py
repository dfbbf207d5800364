#!/usr/bin/env python
"""Django's command line, with `platform/` on the path so that it runs before installation."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "platform"))

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "strop.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
