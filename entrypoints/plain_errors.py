"""Turn each error of an installation into one sentence for the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from entrypoints.settings_error import SettingsError

NO_WORKER: Final = (
    "no worker has been seen for a minute: start `cardonfile serve` or `cardonfile work`; if one is running, "
    "look for reconciler_without_storage in its log"
)


@contextmanager
def plain_errors(*also: type[Exception]) -> Iterator[None]:
    """Turn errors of settings, files and databases into a ClickException with one sentence.

    The errors are raised in a `with` block. `also` contains further types of exceptions to turn
    into a ClickException. The text of such an exception must be one sentence. Other exceptions are
    not changed.
    """
    from entrypoints.databases import in_a_sentence

    sentences: tuple[type[Exception], ...] = (SettingsError, *also)
    try:
        yield
    except sentences as error:
        raise click.ClickException(str(error)) from error
    except (BrokenPipeError, click.ClickException):
        # Click handles both. It exits silently on a broken pipe.
        raise
    except OSError as error:
        of = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{of}{error.strerror or error}") from error
    except Exception as error:
        sentence = in_a_sentence(error)
        if sentence is None:
            raise
        raise click.ClickException(sentence) from error
