"""``python -m lineprofiler`` is the ``lineprofiler`` command."""

import sys

from lineprofiler.accounting.cli import main

if __name__ == "__main__":
    sys.exit(main())
