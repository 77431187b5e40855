"""Make a fake site: `python -m sglang_probe.testing RELEASE DIR` prints the directory to put on PYTHONPATH.

With `--gpus N` it makes N fake cards beside it and prints both variables for a shell to `eval`.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from sglang_probe.testing.core.scenario import Scenario
from sglang_probe.testing.fakesite import RELEASES, make_site
from sglang_probe.testing.gpu import FakeGpus


def main() -> None:
    """Make the site that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m sglang_probe.testing", description=__doc__)
    parser.add_argument("release", choices=RELEASES)
    parser.add_argument("directory")
    parser.add_argument("--gpus", type=int, metavar="N", help="make N cards too, and print lines for a shell to eval")
    given = parser.parse_args()
    site = make_site(given.directory, given.release)
    if given.gpus is None:
        print(site)
        return
    cards = Path(given.directory).absolute()
    with FakeGpus.create(cards.with_name(f"{cards.name}-gpus"), Scenario(gpus=given.gpus)) as gpus:
        for name, value in {"PYTHONPATH": str(site), **gpus.environment}.items():
            print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
