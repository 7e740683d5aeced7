# SPDX-License-Identifier: Apache-2.0
"""Stubs of the modules of nova that plugins import, for an environment without nova.

The base classes and helpers of plugins have nova's names here, and
:func:`stub_in` puts each of them into a module of nova. The finder is the last in
``sys.meta_path``, so that an installed nova always takes precedence.
"""

import contextlib
import importlib
import logging
import math
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
from oslo_db.sqlalchemy import enginefacade

from novasched.conf import loading
from novasched.plugins.nova_compat import nova_options
from novasched.scheduler import weights
from novasched.scheduler.filters.operators import satisfies

LOG = logging.getLogger('nova.scheduler.utils')

ROOT = 'nova'
PRELOADED_MODULES = ('nova.conf', 'nova.scheduler.utils')
"""Modules of an installed nova that declare options. Without the preload, filters of
nova would import the modules, for seconds, while they judge their first host."""
DATABASE_MODULES = ('nova.db.main.api', 'nova.db.api.api')
"""Modules of an installed nova that read ``[database]`` and ``[api_database]``, since
Xena (24)."""
MODULES: dict[str, dict[str, Any]] = {
    'nova': {},
    'nova.conf': {'CONF': cfg.CONF},
    'nova.context': {},
    'nova.i18n': dict.fromkeys(('_', '_LC', '_LE', '_LI', '_LW'), str),
    'nova.objects': {},
    'nova.scheduler': {},
    'nova.utils': {},
}
"""The stub modules with their contents. A plugin can import an empty module; the use of
a name of the module raises an error, which says that nova must be installed."""
T = TypeVar('T', bound=Callable[..., Any])


def stub_in(module: str, name: str = '') -> Callable[[T], T]:
    """Decorator that puts a class or function into a stub module.

    :param name: the name in the module; by default the name of the class or function.
    """

    def register(item: T) -> T:
        MODULES.setdefault(module, {})[name or item.__name__] = item
        return item

    return register


@stub_in('nova.exception')
class NovaException(Exception):
    """nova's base of errors: ``msg_fmt`` formatted with ``kwargs``, or a message."""

    msg_fmt = 'An unknown exception occurred.'

    def __init__(self, message: str | None = None, **kwargs: Any) -> None:
        if message is None:
            message = self.msg_fmt % kwargs
        super().__init__(message)
        self.kwargs = kwargs


@stub_in('nova.filters')
class BaseFilter:
    """nova's base of filters of objects. By default all objects pass."""

    run_filter_once_per_request = False

    def _filter_one(self, obj: Any, spec_obj: Any) -> Any:
        return True

    def filter_all(
        self, filter_obj_list: Iterable[Any], spec_obj: Any
    ) -> Iterable[Any]:
        for obj in filter_obj_list:
            if self._filter_one(obj, spec_obj):
                yield obj

    def run_filter_for_index(self, index: int) -> bool:
        """True if the filter runs for an instance of a request; 0 is the first."""
        return index == 0 or not self.run_filter_once_per_request


@stub_in('nova.scheduler.filters')
class BaseHostFilter(BaseFilter):
    RUN_ON_REBUILD = False

    def _filter_one(self, obj: Any, spec_obj: Any) -> Any:
        # On a rebuild, only filters that set RUN_ON_REBUILD judge the host.
        if request_is_rebuild(spec_obj) and not self.RUN_ON_REBUILD:
            return True
        return self.host_passes(obj, spec_obj)

    def host_passes(self, host_state: Any, filter_properties: Any) -> Any:
        """True if the host can take the instance. Plugins define this method."""
        raise NotImplementedError


@stub_in('nova.scheduler.filters')
class CandidateFilterMixin:
    def filter_candidates(
        self, host_state: Any, filter_func: Callable[[Any], Any]
    ) -> list[Any]:
        """Drop the allocation candidates of a host that a function does not accept."""
        host_state.allocation_candidates = list(
            filter(filter_func, host_state.allocation_candidates)
        )
        return list(host_state.allocation_candidates)


@stub_in('nova.weights')
class WeighedObject:
    """A host state (``obj``) with its weight."""

    def __init__(self, obj: Any, weight: float) -> None:
        self.obj = obj
        self.weight = weight

    def __repr__(self) -> str:
        return f'{type(self).__name__} [host: {self.obj}, weight: {self.weight}]'


@stub_in('nova.scheduler.weights')
class WeighedHost(WeighedObject):
    def to_dict(self) -> dict[str, Any]:
        """The weight and the name of the host."""
        return {'weight': self.weight, 'host': self.obj.host}


@stub_in('nova.weights')
class BaseWeigher:
    minval: float | None = None
    maxval: float | None = None

    def weight_multiplier(self, host_state: Any) -> float:
        """The multiplier of the weigher on a host."""
        return 1.0

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        raise NotImplementedError

    def weigh_objects(
        self, weighed_obj_list: Iterable[WeighedObject], weight_properties: Any
    ) -> list[float]:
        """The raw weights, cut to the range from ``minval`` to ``maxval``."""
        low = -math.inf
        if self.minval is not None:
            low = self.minval
        high = math.inf
        if self.maxval is not None:
            high = self.maxval

        # Comparing also reveals a plugin that returns None in place of a weight.
        weights = []
        for weighed in weighed_obj_list:
            weight = self._weigh_object(weighed.obj, weight_properties)
            weights.append(min(max(weight, low), high))
        return weights


@stub_in('nova.scheduler.weights')
class BaseHostWeigher(BaseWeigher):
    """nova's base of weighers of hosts."""


@stub_in('nova.weights')
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


@stub_in('nova.scheduler.utils')
def request_is_rebuild(spec_obj: Any) -> bool:
    hints = getattr(spec_obj, 'scheduler_hints', None) or {}
    return bool(hints.get('_nova_check_type') == ['rebuild'])


@stub_in('nova.scheduler.utils')
def get_weight_multiplier(
    host_state: Any, multiplier_name: str, multiplier_config: float
) -> float:
    """The least multiplier in the metadata of the host's aggregates, or the option."""
    values = aggregate_values_from_key(host_state, multiplier_name)
    try:
        return float(validate_num_values(values, multiplier_config, cast_to=float))
    except ValueError as error:
        LOG.warning(
            "Could not decode '%s' weight multiplier: %s", multiplier_name, error
        )
        return multiplier_config


@stub_in('nova.scheduler.filters.utils')
def aggregate_values_from_key(host_state: Any, key_name: str) -> set[str]:
    values = set()
    for aggregate in host_state.aggregates:
        if key_name in aggregate.metadata:
            values.add(aggregate.metadata[key_name])
    return values


@stub_in('nova.scheduler.filters.utils')
def aggregate_metadata_get_by_host(
    host_state: Any, key: str | None = None
) -> dict[str, set[str]]:
    """The metadata of the host's aggregates, with values split at commas.

    :param key: only aggregates with this metadata key are read.
    """
    values: defaultdict[str, set[str]] = defaultdict(set)
    for aggregate in host_state.aggregates:
        if key is None or key in aggregate.metadata:
            for name, value in aggregate.metadata.items():
                values[name].update(map(str.strip, value.split(',')))
    return values


@stub_in('nova.scheduler.filters.utils')
def validate_num_values(
    vals: Collection[Any],
    default: Any = None,
    cast_to: Callable[[Any], Any] = int,
    based_on: Callable[[Iterable[Any]], Any] = min,
) -> Any:
    """Reduce the values of a metadata key to a number, as nova's function does.

    :raises ValueError: a value is not a number.
    """
    if not vals:
        return default
    return based_on([cast_to(value) for value in vals])


@stub_in('nova.scheduler.filters.utils')
def instance_uuids_overlap(host_state: Any, uuids: str | Iterable[str]) -> bool:
    if isinstance(uuids, str):
        uuids = [uuids]
    return any(uuid in host_state.instances for uuid in uuids)


@stub_in('nova.scheduler.filters.extra_specs_ops')
def match(value: str | None, req: str) -> bool:
    return value is not None and satisfies(value, req)


@stub_in('nova.servicegroup', 'API')
class ServiceGroupApi:
    """nova's servicegroup API, for the service of a host state."""

    def service_is_up(self, member: Any) -> bool:
        """True if the service was up when novasched read the host."""
        return not member['forced_down']


class StubModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f'{self.__name__}.{name} does not exist unless nova is installed'
        )


class StubFinder(MetaPathFinder, Loader):
    """Finds and loads the modules of :data:`MODULES`."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`.

        A module that an installed nova lacks is not replaced by a stub.
        """
        if fullname not in MODULES or (fullname != ROOT and nova_is_installed()):
            return None
        # Every stub is a package, so that modules below can be imported.
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(MODULES[module.__name__])


def install() -> None:
    """Let ``import nova`` succeed in this process from now on."""
    if not any(isinstance(finder, StubFinder) for finder in sys.meta_path):
        sys.meta_path.append(StubFinder())


def nova_is_installed() -> bool:
    """True if nova itself can be imported, and not only the stubs."""
    spec = find_spec(ROOT)
    return spec is not None and not isinstance(spec.loader, StubFinder)


def share_options(conf: cfg.ConfigOpts) -> None:
    """Give oslo.config's global CONF the configuration files that ``conf`` has read.

    Plugins read options from the global CONF. As in a service of nova, CONF also knows
    nova's options: as an installed nova declares them, or from the list of
    :mod:`.nova_options`.
    """
    install()
    cfg.CONF.clear()
    # Options come before the files: oslo.config refuses to register options of the
    # command line after CONF has been called.
    if nova_is_installed():
        for module in PRELOADED_MODULES:
            # A plugin that needs the module then fails with the same error.
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
    else:
        loading.register(cfg.CONF)
        nova_options.register(cfg.CONF)
    cfg.CONF(
        [],
        project=loading.PROJECT,
        default_config_files=conf.config_file or [],
        default_config_dirs=loading.folders(conf),
    )
    if nova_is_installed():
        _prepare_objects()


def _prepare_objects() -> None:
    """Let plugins use the objects of an installed nova, which read nova's databases."""
    with contextlib.suppress(ImportError):
        importlib.import_module('nova.objects').register_all()
    for module in DATABASE_MODULES:
        # Configured again in each worker, and before the first query.
        with contextlib.suppress(ImportError, enginefacade.AlreadyStartedError):
            importlib.import_module(module).configure(cfg.CONF)
