"""Which language a file or a record is in: by its name, or by the word its record has for it."""

import re
from pathlib import PurePosixPath

EXTENSIONS = {
    "bash": ("sh", "bash"),
    "c": ("c", "h"),
    "c++": ("cc", "cpp", "cxx", "hh", "hpp", "hxx"),
    "c#": ("cs",),
    "css": ("css", "scss"),
    "dart": ("dart",),
    "elixir": ("ex", "exs"),
    "go": ("go",),
    "haskell": ("hs",),
    "html": ("html", "htm"),
    "java": ("java",),
    "javascript": ("js", "mjs", "cjs", "jsx"),
    "json": ("json",),
    "julia": ("jl",),
    "kotlin": ("kt", "kts"),
    "lua": ("lua",),
    "markdown": ("md", "markdown"),
    "ocaml": ("ml", "mli"),
    "perl": ("pl", "pm"),
    "php": ("php",),
    "python": ("py", "pyi"),
    "r": ("r",),
    "restructuredtext": ("rst",),
    "ruby": ("rb",),
    "rust": ("rs",),
    "scala": ("scala",),
    "sql": ("sql",),
    "swift": ("swift",),
    "text": ("txt",),
    "toml": ("toml",),
    "typescript": ("ts", "tsx"),
    "yaml": ("yaml", "yml"),
    "zig": ("zig",),
}
NAMES = {"dockerfile": "dockerfile", "makefile": "makefile", "readme": "text"}  # of files without an extension
ALIASES = {"cpp": "c++", "csharp": "c#", "golang": "go", "shell": "bash", "sh": "bash", "js": "javascript",
           "ts": "typescript", "py": "python", "md": "markdown",
           "rst": "restructuredtext"}  # fmt: skip
LANGUAGES = frozenset(EXTENSIONS) | frozenset(NAMES.values())

_BY_EXTENSION = {extension: language for language, known in EXTENSIONS.items() for extension in known}


def language_of_file(name: str) -> str | None:
    """Example: "src/Main.HS" -> "haskell"; None for what is neither code nor text by its name."""
    path = PurePosixPath(name.lower())
    return _BY_EXTENSION.get(path.suffix.removeprefix(".")) if path.suffix else NAMES.get(path.name)


def language_named(word: str) -> str | None:
    """Example: "C++" and "cpp" -> "c++"; None for a language that is not in the table."""
    plain = re.sub(r"\s+", "", word.lower())
    known = ALIASES.get(plain, plain)
    return known if known in LANGUAGES else None
