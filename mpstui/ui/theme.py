"""Theme files made into Textual themes, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from textual.color import Color
from textual.theme import Theme

from mpstui.config import ThemeSpec

DEFAULT: Final = "mpstui-dark"
TERMINAL: Final = "terminal"
PREFIX: Final = "mps-"
"""Our own variables in CSS: ``$mps-ok``, ``$mps-bar``, … for each of ``config.MARK_KEYS``."""

_MARK_FROM_COLOR: Final = {
    "ok": "success",
    "warn": "warning",
    "error": "error",
    "held": "accent",
    "gone": "foreground",
    "muted": "foreground",
    "outdated": "warning",
    "bar": "primary",
    "bar-memory": "secondary",
    "bar-high": "warning",
    "bar-empty": "panel",
    "badge": "primary",
    "badge-text": "background",
    "marked": "panel",
}
_DARK_GROUND: Final = {"foreground": "#d5daea", "background": "#0f1117", "surface": "#161922", "panel": "#1f2430"}
_LIGHT_GROUND: Final = {"foreground": "#1f2430", "background": "#fafafa", "surface": "#f1f2f5", "panel": "#e5e8ee"}
_ANSI_GROUND: Final = dict.fromkeys(_DARK_GROUND, "ansi_default")
AA: Final = 4.5
"""The contrast that WCAG 2 asks for text, level AA."""
_BANDS: Final = {"cursor": ("primary", 0.30), "cursor-blur": ("foreground", 0.09), "chosen": ("accent", 0.14)}
"""The ground of the row under the cursor and of chosen rows: what it is mixed of, and how much of it at most."""
_MIXED: Final = {"edge": 0.25, "off": 0.5}
"""Foreground in the ground: of frames, and of keys that do nothing now."""
_FALLBACK: Final = {
    "error": "primary",
    "secondary": "primary",
    "accent": "primary",
    "success": "secondary",
    "warning": "primary",
}


def build_themes(specs: Sequence[ThemeSpec]) -> list[Theme]:
    """Textual themes with our own variables, in the order of ``specs``."""
    return [_theme(spec) for spec in specs]


def choose_theme(wanted: str | None, env: Mapping[str, str]) -> str:
    """The theme to start with.

    ``NO_COLOR`` always gives the terminal's own: Textual still sends greys with any other. Otherwise ``wanted``, and
    without a wish the default, or the terminal's own where there are 16 colours only.
    """
    if env.get("NO_COLOR"):
        return TERMINAL
    if wanted:
        return wanted
    return DEFAULT if _many_colors(env) else TERMINAL


def variable_defaults(theme: Theme) -> dict[str, str]:
    """Our variables for ``App.get_theme_variable_defaults``, for a theme that has none: one of Textual's own."""

    def color(name: str) -> str:
        return getattr(theme, name, None) or _DARK_GROUND.get(name) or theme.primary

    marks = {mark: getattr(theme, name) or theme.primary for mark, name in _MARK_FROM_COLOR.items()}
    return {PREFIX + mark: value for mark, value in {**marks, **_grounds(color, marks)}.items()}


def contrast(one: Color, other: Color) -> float:
    """The ratio that WCAG 2 defines, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color: Color) -> float:
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in color.normalized]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _grounds(color: Callable[[str], str], marks: Mapping[str, str]) -> dict[str, str]:
    """Bands and edges: as strong as they may be while all text that can be read on the ground can be read on them."""
    ground, foreground = Color.parse(color("background")), Color.parse(color("foreground"))
    if ground.ansi is not None or foreground.ansi is not None:
        return dict.fromkeys((*_BANDS, *_MIXED), "ansi_default")
    words = [color(name) for name in ("primary", "secondary", "accent", "foreground")]
    words += [marks[name] for name in ("ok", "warn", "error", "held", "gone", "muted", "outdated")]
    texts = [text for word in dict.fromkeys(words) if contrast(text := Color.parse(word), ground) >= AA]
    made = {name: ground.blend(foreground, part).hex for name, part in _MIXED.items()}
    for name, (tint, most) in _BANDS.items():
        strengths = [most * step / 12 for step in range(12, 1, -1)]
        mixed = (ground.blend(Color.parse(color(tint)), strength) for strength in strengths)
        good = (band.hex for band in mixed if all(contrast(text, band) >= AA for text in texts))
        made[name] = next(good, ground.hex)
    return made


def _many_colors(env: Mapping[str, str]) -> bool:
    """Whether Rich, which writes for Textual, would use more than 16 colours on this terminal."""
    if env.get("COLORTERM", "").strip().lower() in {"truecolor", "24bit"}:
        return True
    return env.get("TERM", "").rpartition("-")[2] in {"256color", "kitty"}


def _theme(spec: ThemeSpec) -> Theme:
    ground = _ANSI_GROUND if spec.ansi else _DARK_GROUND if spec.dark else _LIGHT_GROUND
    colors = {**ground, **spec.colors}

    def color(name: str) -> str:
        while name not in colors and name in _FALLBACK:
            name = _FALLBACK[name]
        return colors.get(name, colors["primary"])

    marks = {mark: spec.marks.get(mark) or color(_MARK_FROM_COLOR[mark]) for mark in _MARK_FROM_COLOR}
    own = {name: spec.marks[name] for name in _MIXED if name in spec.marks}
    variables = {PREFIX + mark: value for mark, value in {**marks, **_grounds(color, marks), **own}.items()}
    variables |= _ansi_variables() if spec.ansi else _variables(color, marks)
    return Theme(
        name=spec.name,
        dark=spec.dark,
        ansi=spec.ansi,
        variables=variables,
        primary=color("primary"),
        secondary=color("secondary"),
        accent=color("accent"),
        success=color("success"),
        warning=color("warning"),
        error=color("error"),
        foreground=color("foreground"),
        background=color("background"),
        surface=color("surface"),
        panel=color("panel"),
    )


def _variables(color: Callable[[str], str], marks: Mapping[str, str]) -> dict[str, str]:
    """Textual's variables where its own derivation gives too little contrast or too much noise."""
    return {
        "text-primary": color("primary"),
        "text-secondary": color("secondary"),
        "text-accent": color("accent"),
        "text-success": color("success"),
        "text-warning": color("warning"),
        "text-error": color("error"),
        "text": color("foreground"),
        "text-muted": marks["muted"],
        "foreground-muted": marks["muted"],
        "border": color("primary"),
        "border-blurred": marks["bar-empty"],
        "block-cursor-background": color("primary"),
        "block-cursor-foreground": color("background"),
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": marks["marked"],
        "block-cursor-blurred-foreground": color("foreground"),
        "footer-background": color("surface"),
        "footer-foreground": color("foreground"),
        "footer-description-foreground": marks["muted"],
        "footer-key-foreground": color("primary"),
        "input-cursor-background": color("foreground"),
        "input-cursor-foreground": color("background"),
        "input-selection-background": marks["marked"],
        "scrollbar": marks["bar-empty"],
        "scrollbar-hover": marks["muted"],
        "scrollbar-active": color("primary"),
        "scrollbar-background": color("surface"),
        "scrollbar-background-hover": color("surface"),
        "scrollbar-background-active": color("surface"),
        "scrollbar-corner-color": color("surface"),
    }


def _ansi_variables() -> dict[str, str]:
    """No shades: a terminal with 16 colours has none, and black or white may be the colour of its background."""
    return {
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "text-muted": "ansi_default",
        "text-disabled": "ansi_default",
        "foreground-muted": "ansi_default",
        "border": "ansi_blue",
        "border-blurred": "ansi_default",
        "block-cursor-background": "ansi_blue",
        "block-cursor-foreground": "ansi_bright_white",
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": "ansi_default",
        "block-cursor-blurred-foreground": "ansi_default",
        "block-cursor-blurred-text-style": "reverse",
        "footer-key-foreground": "ansi_cyan",
        "input-cursor-background": "ansi_default",
        "input-cursor-foreground": "ansi_default",
        "input-cursor-text-style": "reverse",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
    }
