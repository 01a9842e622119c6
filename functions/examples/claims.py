"""What a demonstration says is so, checked while it says it."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape


class Claims:
    """Prints each claim with a tick or a cross, and remembers whether all held."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.count = 0
        self.broken: list[str] = []

    def claim(self, text: str, holds: bool) -> None:
        """State something; ``holds`` says whether it is true."""
        self.count += 1
        if not holds:
            self.broken.append(text)
        self._console.print(f"  {'[green]✓' if holds else '[bold red]✗'}[/] {escape(text)}")
