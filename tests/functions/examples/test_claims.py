from __future__ import annotations

import io

from rich.console import Console

from functions.examples.claims import Claims


def test_what_does_not_hold_is_shown_and_remembered() -> None:
    shown = io.StringIO()
    claims = Claims(Console(file=shown, width=80))
    claims.claim("seven lines [were] read", True)
    claims.claim("nothing is left", False)

    assert (claims.count, claims.broken) == (2, ["nothing is left"])
    assert shown.getvalue() == "  ✓ seven lines [were] read\n  ✗ nothing is left\n"
