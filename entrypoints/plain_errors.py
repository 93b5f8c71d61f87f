"""What is wrong with an installation, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from adapters.psp.settings import SettingsError


@contextmanager
def plain_errors(*also: type[Exception]) -> Iterator[None]:
    """Put what is wrong with the installation into one sentence, as a ClickException.

    `also` names more exceptions whose text is such a sentence.
    """
    from entrypoints.databases import in_a_sentence

    sentences: tuple[type[Exception], ...] = (SettingsError, *also)
    try:
        yield
    except sentences as error:
        raise click.ClickException(str(error)) from error
    except (BrokenPipeError, click.ClickException):
        # Click ends quietly when nobody reads on.
        raise
    except OSError as error:
        of = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{of}{error.strerror or error}") from error
    except Exception as error:
        sentence = in_a_sentence(error)
        if sentence is None:
            raise
        raise click.ClickException(sentence) from error
