"""Lets MkDocs build the site from the pages as GitHub shows them: hooks of mkdocs.yml.

The README of the repository is the site's first page. Files outside of docs/ that pages
link to become part of the site too, so that it needs no address of a repository.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
_LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what pages link to, and what that links to."""
    todo = {"README.md", *(f"docs/{file.src_uri}" for file in files.documentation_pages())}
    done: set[str] = set()
    while todo:
        path = todo.pop()
        done.add(path)
        if not path.startswith("docs/"):
            files.append(File.generated(config, _site_path(path), abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            links = (_linked(path, link) for link, _ in _LINK.findall((ROOT / path).read_text(encoding="utf-8")))
            todo |= {link for link in links if _site_path(link) != "index.md" and (ROOT / link).is_file()} - done
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files of the repository into links of the site."""
    path = Path(str(page.file.abs_src_path)).relative_to(ROOT).as_posix()
    folder = posixpath.dirname(page.file.src_uri) or "."

    def rewrite(match: re.Match[str]) -> str:
        target = _linked(path, match[1])
        if not (ROOT / target).is_file():
            return match[0]
        return f"]({posixpath.relpath(_site_path(target), folder)}{match[2] or ''})"

    return _LINK.sub(rewrite, markdown)


def _linked(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _site_path(path: str) -> str:
    return "index.md" if path in ("README.md", "docs/README.md") else path.removeprefix("docs/")
