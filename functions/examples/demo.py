"""The demonstration: ``python -m functions.examples.demo`` builds the examples, starts a platform on free ports with a temporary
data directory, tells the story, stops it, and looks for processes left behind. Exit code 1 when a claim does not hold.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from functions.examples import build, packages
from functions.examples.claims import Claims
from functions.examples.client import CallFailed, Client
from functions.examples.platform import Platform, PlatformFailed, adopt_orphans, survivors
from functions.examples.story import Story


def demonstrate(console: Console, out: Path, models: Path) -> list[str]:
    """Everything from the build to the last process gone; the claims that did not hold. Raises what its parts raise."""
    began, claims = time.perf_counter(), Claims(console)
    built = build.build(out, models)
    console.print(f"{len(build.EXAMPLES)} example functions in {out}, {len(built)} of them built now: {time.perf_counter() - began:.1f} s")
    with tempfile.TemporaryDirectory(prefix="despina-demo-") as data:
        adopt_orphans()
        started = time.perf_counter()
        platform = Platform(Path(data))
        console.print(f"platform ready at {platform.url}: {time.perf_counter() - started:.1f} s")
        try:
            with Client(platform.url, platform.metrics_url) as client:
                Story(console, claims, out, platform, client).tell()
        except CallFailed as error:
            raise PlatformFailed(f"{error}\n{platform.last_words()}") from error
        finally:
            code = platform.stop()
        left = survivors()
    console.print("\n[bold]Stop[/]")
    claims.claim(f"despina up ended with exit code {code}", code == 0)
    claims.claim(f"no process is left{''.join(f'; {process}' for process in left)}", not left)
    kept = claims.count - len(claims.broken)
    console.print(f"\n{kept} of {claims.count} claims hold, {time.perf_counter() - began:.1f} s in all")
    return claims.broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m functions.examples.demo", description="Despina's main job on real input, checked.")
    parser.add_argument("--out", type=Path, default=Path(".build/examples"), help="where the examples are built (default: %(default)s)")
    parser.add_argument("--models", type=Path, default=Path(".build/models"), help="where model packages are kept (default: %(default)s)")
    options = parser.parse_args()
    console = Console(highlight=False)
    try:
        broken = demonstrate(console, options.out, options.models)
    except (PlatformFailed, packages.PackagesMissing) as error:
        console.print(f"[bold red]the demonstration stopped:[/] {escape(str(error))}")
        return 1
    for claim in broken:
        console.print(f"[bold red]did not hold:[/] {escape(claim)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
