"""Make a fake site: `python -m sglang_probe.testing RELEASE DIR` prints the directory to put on PYTHONPATH."""

from __future__ import annotations

import argparse

from sglang_probe.testing.fakesite import RELEASES, make_site


def main() -> None:
    """Make the site that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m sglang_probe.testing", description=__doc__)
    parser.add_argument("release", choices=RELEASES)
    parser.add_argument("directory")
    given = parser.parse_args()
    print(make_site(given.directory, given.release))


if __name__ == "__main__":
    main()
