# SPDX-License-Identifier: Apache-2.0
"""Stubs of the modules that a plugin imports from ``nova`` where nova is not installed.

The classes and functions that plugins build on stand here by nova's name, each lent to
nova's module. They work on whatever has nova's attributes. The finder stands last in
the import system's line, so that it is asked only for what nobody else has: a real
nova, whole or in part, always goes first.
"""

import contextlib
import importlib
import logging
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from oslo_config import cfg

from novasched.conf import loading
from novasched.scheduler import weights
from novasched.scheduler.filters.operators import satisfies

LOG = logging.getLogger('nova.scheduler.utils')

ROOT = 'nova'
PRELOADED_MODULES = ('nova.conf', 'nova.scheduler.utils')
"""Modules of a real nova that declare its options, and that its filters would import,
for seconds, when they judge their first host."""
MODULES: dict[str, dict[str, Any]] = {
    'nova': {},
    'nova.conf': {'CONF': cfg.CONF},
    'nova.context': {},
    'nova.i18n': dict.fromkeys(('_', '_LC', '_LE', '_LI', '_LW'), str),
    'nova.objects': {},
    'nova.scheduler': {},
    'nova.utils': {},
}
"""All of nova that there is without nova. The empty ones can be imported, and whoever
takes something out of them learns that it takes a real nova."""
T = TypeVar('T', bound=Callable[..., Any])


def lent_to(module: str, name: str = '') -> Callable[[T], T]:
    """Put a class or function into one of nova's modules, by its own or another
    name."""

    def lend(item: T) -> T:
        MODULES.setdefault(module, {})[name or item.__name__] = item
        return item

    return lend


@lent_to('nova.exception')
class NovaException(Exception):
    """A text with fields, or one of its own."""

    msg_fmt = 'An unknown exception occurred.'

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        super().__init__(self.msg_fmt % kwargs if message is None else message)
        self.kwargs = kwargs


@lent_to('nova.filters')
class BaseFilter:
    """Anything can be filtered, and everything passes."""

    run_filter_once_per_request = False

    def _filter_one(self, obj: Any, spec_obj: Any) -> Any:
        return True

    def filter_all(
        self, filter_obj_list: Iterable[Any], spec_obj: Any
    ) -> Iterable[Any]:
        return (each for each in filter_obj_list if self._filter_one(each, spec_obj))

    def run_filter_for_index(self, index: int) -> bool:
        """True if the filter runs for that instance of a request (0 is the first)."""
        return index == 0 or not self.run_filter_once_per_request


@lent_to('nova.scheduler.filters')
class BaseHostFilter(BaseFilter):
    RUN_ON_REBUILD = False

    def _filter_one(self, obj: Any, spec_obj: Any) -> Any:
        sits_out = request_is_rebuild(spec_obj) and not self.RUN_ON_REBUILD
        return sits_out or self.host_passes(obj, spec_obj)

    def host_passes(self, host_state: Any, filter_properties: Any) -> Any:
        """True if the host can take the instance; for a plugin to define."""
        raise NotImplementedError


@lent_to('nova.scheduler.filters')
class CandidateFilterMixin:
    def filter_candidates(
        self, host_state: Any, filter_func: Callable[[Any], Any]
    ) -> list[Any]:
        """Leave a host those allocation candidates alone that a function accepts."""
        host_state.allocation_candidates = list(
            filter(filter_func, host_state.allocation_candidates)
        )
        return list(host_state.allocation_candidates)


@lent_to('nova.weights')
class WeighedObject:
    """A host state in ``obj``, and its weight."""

    def __init__(self, obj: Any, weight: float) -> None:
        self.obj = obj
        self.weight = weight

    def __repr__(self) -> str:
        return f'{type(self).__name__} [host: {self.obj}, weight: {self.weight}]'


@lent_to('nova.scheduler.weights')
class WeighedHost(WeighedObject):
    def to_dict(self) -> dict[str, Any]:
        """The weight, and the name of the host."""
        return {'weight': self.weight, 'host': self.obj.host}


@lent_to('nova.weights')
class BaseWeigher:
    minval: float | None = None
    maxval: float | None = None

    def weight_multiplier(self, host_state: Any) -> float:
        """The factor of the weigher's weight on a host."""
        return 1.0

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        raise NotImplementedError

    def weigh_objects(
        self, weighed_obj_list: Iterable[WeighedObject], weight_properties: Any
    ) -> list[float]:
        """The raw weights, between ``minval`` and ``maxval``."""
        low = float('-inf') if self.minval is None else self.minval
        high = float('inf') if self.maxval is None else self.maxval
        raw = (
            self._weigh_object(each.obj, weight_properties) for each in weighed_obj_list
        )
        return [min(max(weight, low), high) for weight in raw]


@lent_to('nova.scheduler.weights')
class BaseHostWeigher(BaseWeigher):
    """The same, for hosts."""


@lent_to('nova.weights')
def normalize(
    weight_list: Sequence[float],
    minval: float | None = None,
    maxval: float | None = None,
) -> list[float]:
    if not weight_list:
        return []
    normalised: list[float] = weights.normalised(
        np.array(weight_list), minval, maxval
    ).tolist()
    return normalised


@lent_to('nova.scheduler.utils')
def request_is_rebuild(spec_obj: Any) -> bool:
    hints = getattr(spec_obj, 'scheduler_hints', None) or {}
    return bool(hints.get('_nova_check_type') == ['rebuild'])


@lent_to('nova.scheduler.utils')
def get_weight_multiplier(
    host_state: Any, multiplier_name: str, multiplier_config: float
) -> float:
    """The least number that the host's aggregates give, or else the option's."""
    values = aggregate_values_from_key(host_state, multiplier_name)
    try:
        return float(validate_num_values(values, multiplier_config, cast_to=float))
    except ValueError as error:
        LOG.warning(
            "Could not decode '%s' weight multiplier: %s", multiplier_name, error
        )
        return multiplier_config


@lent_to('nova.scheduler.filters.utils')
def aggregate_values_from_key(host_state: Any, key_name: str) -> set[str]:
    metadata = [each.metadata for each in host_state.aggregates]
    return {each[key_name] for each in metadata if key_name in each}


@lent_to('nova.scheduler.filters.utils')
def aggregate_metadata_get_by_host(
    host_state: Any, key: str | None = None
) -> dict[str, set[str]]:
    """All that the host's aggregates say, values split at commas; with a key, those
    aggregates alone that have it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for each in host_state.aggregates:
        if key is None or key in each.metadata:
            for name, value in each.metadata.items():
                found[name].update(part.strip() for part in value.split(','))
    return found


@lent_to('nova.scheduler.filters.utils')
def validate_num_values(
    vals: Collection[Any],
    default: Any = None,
    cast_to: Callable[[Any], Any] = int,
    based_on: Callable[[Iterable[Any]], Any] = min,
) -> Any:
    """Reduce the numbers of a metadata key to one, as the function of nova does.

    :raises ValueError: a value is no number.
    """
    if vals:
        return based_on([cast_to(each) for each in vals])
    return default


@lent_to('nova.scheduler.filters.utils')
def instance_uuids_overlap(host_state: Any, uuids: str | Iterable[str]) -> bool:
    wanted = [uuids] if isinstance(uuids, str) else uuids
    return any(each in host_state.instances for each in wanted)


@lent_to('nova.scheduler.filters.extra_specs_ops')
def match(value: str | None, req: str) -> bool:
    return value is not None and satisfies(value, req)


@lent_to('nova.servicegroup', 'API')
class ServiceGroupApi:
    """As far as the service of a host state goes."""

    def service_is_up(self, member: Any) -> bool:
        """True if the service was up when its host was read."""
        return not member['forced_down']


class StubModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f'{self.__name__}.{name} is not there unless nova is installed'
        )


class StubFinder(MetaPathFinder, Loader):
    """Finds and loads the modules of the table."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`; None where a real nova lacks a
        module."""
        if fullname not in MODULES or (fullname != ROOT and nova_is_installed()):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(MODULES[module.__name__])


def install() -> None:
    """Let ``import nova`` succeed in this process from now on."""
    if not any(isinstance(each, StubFinder) for each in sys.meta_path):
        sys.meta_path.append(StubFinder())


def nova_is_installed() -> bool:
    """True where there is a real nova to import."""
    spec = find_spec(ROOT)
    return spec is not None and not isinstance(spec.loader, StubFinder)


def share_options(conf: cfg.ConfigOpts) -> None:
    """Let oslo.config's global CONF, which plugins read, have the files that ``conf``
    has read.

    It knows nova's options too, as in a nova service: by a real nova, if there is one,
    or else those declared here. They have to be there first, since some are for the
    command line, and those cannot be added later.
    """
    install()
    cfg.CONF.clear()
    if nova_is_installed():
        for module in PRELOADED_MODULES:
            with contextlib.suppress(
                ImportError
            ):  # then the plugin cannot import it either
                importlib.import_module(module)
    else:
        loading.register(cfg.CONF)
    cfg.CONF(
        [],
        project=loading.PROJECT,
        default_config_files=conf.config_file or [],
        default_config_dirs=conf.config_dir or [],
    )
