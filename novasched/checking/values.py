# SPDX-License-Identifier: Apache-2.0
"""Values that cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from oslo_config import cfg

from novasched.checking.finding import Finding, Level
from novasched.checking.known import Known
from novasched.checking.options import names_of
from novasched.conf import RATIOS
from novasched.conf.written import Written
from novasched.model import ratios
from novasched.model.settings import Settings

AREA = 'values'


def check(conf: cfg.ConfigOpts, written: Written, known: Known) -> Iterator[Finding]:
    """Read whatever is written and known. A bad value is replaced by the option's default
    in ``conf``, so that the other checks can go on."""
    for group, options in known.items():
        section = None if group == 'DEFAULT' else group
        for option in options.values():
            if not any(name in written.get(place, {}) for place, name in names_of(group, option)):
                continue
            _declare(conf, option, section)
            why = _wrong(conf, option, section)
            if why:
                conf.set_override(option.dest, option.default, section)
                yield Finding(AREA, Level.ERROR, f'[{group}] {option.dest}', why)


def check_together(settings: Settings, written: Written) -> Iterator[Finding]:
    """Values that do not go together, or of which novasched takes a part alone."""
    for field in RATIOS:
        _, bad = ratios.parse(getattr(settings, field))
        if bad:
            yield Finding(AREA, Level.WARNING, field, f'elements are ignored: {", ".join(bad)}')
    down = written.get('DEFAULT', {}).get('service_down_time')
    if down and str(settings.service_down_time) != down[-1].strip():
        text = f'must be more than report_interval; {settings.service_down_time} s is taken for it'
        yield Finding(AREA, Level.WARNING, '[DEFAULT] service_down_time', text)


def _declare(conf: cfg.ConfigOpts, option: cfg.Opt, section: str | None) -> None:
    with suppress(cfg.DuplicateOptError):  # then it is declared, with another default
        conf.register_opt(option, section)


def _wrong(conf: cfg.ConfigOpts, option: cfg.Opt, section: str | None) -> str | None:
    try:
        (conf[section] if section else conf)[option.dest]
    except cfg.ConfigSourceValueError as error:
        return 'not valid' if option.secret else str(error).rpartition('is not valid: ')[2]
    except (cfg.NoSuchOptError, cfg.TemplateSubstitutionError):
        return 'holds a $ that names no option; a $ of the value itself is written $$'
    return None
