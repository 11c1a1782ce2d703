"""Resolves paths and reads small files that the user names, with clear errors."""

from pathlib import Path

from tfx_distribute.trainer_module.errors import ConfigurationError


def resolve(path: str | Path, base: str | Path = ".") -> Path:
    """Makes a path absolute, from `base`, with `~` and symbolic links resolved."""
    if not str(path):
        raise ConfigurationError("the path is empty")
    return (Path(base) / Path(path).expanduser()).resolve()


def read_text(path: str | Path) -> str:
    """Reads a file as UTF-8 text, or raises a ConfigurationError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start})") from error


def shorten(text: str, max_length: int = 200) -> str:
    """Returns a text for a message: whole, or its beginning and its length."""
    return text if len(text) <= max_length else f"{text[:max_length]}... ({len(text):,} characters)"
