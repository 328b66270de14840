"""What other distributions add to this package, by entry points of the group `keras_tfm.plugins`.

An entry point's name is one of `KINDS`, a dot and the plugin's own name, such as `reader.points`; its value
is "module:attribute". Files name plugins, never modules, and a plugin is imported once its name is asked for.
"""

import functools
import importlib.metadata
import logging
from typing import NamedTuple

GROUP = "keras_tfm.plugins"
KINDS = "task", "family", "reader", "answer", "graph-reader", "graph-answer"
LOG = logging.getLogger(__name__)


class Plugin(NamedTuple):
    """An entry point, as its kind and its own name, and the (name, version) of its distribution."""

    kind: str
    name: str
    entry: importlib.metadata.EntryPoint
    distribution: tuple[str, str]

    def __str__(self):
        return f"{self.kind}.{self.name} of {' '.join(self.distribution)}"

    def load(self):
        """What it stands for; ImportError, naming it, if that cannot be imported."""
        try:
            return self.entry.load()
        except Exception as error:  # an outsider's module may raise anything
            raise ImportError(f"The plugin {self} is broken: {type(error).__name__}: {error}") from error


@functools.cache
def warn(message):
    """Log a warning, each of them once."""
    LOG.warning("%s", message)


def _plugins():
    """All that are installed; one warning for each distribution that cannot be read."""
    found: dict[str, list[Plugin]] = {}
    for distribution in importlib.metadata.distributions():
        try:
            if entries := distribution.entry_points.select(group=GROUP):
                name, version = distribution.metadata["Name"], distribution.metadata["Version"]
                if not (name and version):
                    raise ValueError("its METADATA has no name or no version")
                of_it = [Plugin(*entry.name.partition(".")[::2], entry, (name, version)) for entry in entries]
                found.setdefault(name.lower(), of_it)  # the first on the path hides others of its name
        except Exception as error:  # its entry_points.txt or its METADATA is damaged
            warn(f"The plugins of {_place(distribution)} are left out, they cannot be read: {error!r}")
    return [plugin for of_one in found.values() for plugin in of_one]


def _place(distribution):
    """The name of a distribution that is damaged, if it still says it, and where it lies."""
    try:
        name = distribution.metadata["Name"]
    except Exception:
        name = None
    return f"{name or 'a distribution'} in {distribution.locate_file('')}"


def find(kind, name):
    """The plugin of this kind and name, or None; ValueError if two distributions have it."""
    found = [plugin for plugin in _plugins() if plugin[:2] == (kind, name)]
    if len(found) > 1:
        both = " and ".join(map(str, found))
        raise ValueError(f"Two plugins have one name: {both}; uninstall one of them.")
    return found[0] if found else None


def installed(kind, taken=()):
    """{name: plugin} of a kind. One warning each for plugins that are left out: an unknown kind, a name that
    is `taken` here, a name that two have.
    """
    found: dict[str, Plugin] = {}
    for plugin in _plugins():
        if plugin.kind not in KINDS or not plugin.name:
            warn(f"The plugin {plugin} is left out: expected a name that begins with {', '.join(KINDS)}")
        elif plugin.kind == kind and plugin.name in taken:
            warn(f"The plugin {plugin} is left out: keras_tfm itself has a {kind} of this name")
        elif plugin.kind == kind and plugin.name in found:
            warn(f"The plugin {plugin} is left out: {found[plugin.name]} has the same name")
        elif plugin.kind == kind:
            found[plugin.name] = plugin
    return found


def distributions(*found):
    """What a file keeps of the plugins that it needs, {"plugins": {distribution: version}}; {} of none. Each
    of `found` is a plugin or None.
    """
    needed = dict(plugin.distribution for plugin in found if plugin is not None)
    return {"plugins": needed} if needed else {}


def require(content, where):
    """Raise ValueError, naming it, for the first plugin that `content` needs and that is not installed; one
    warning for another version than the one it was written with.
    """
    needed = content.get("plugins", {})
    if not isinstance(needed, dict) or not all(isinstance(version, str) for version in needed.values()):
        raise ValueError(f"{where}: expected versions by the names of distributions as 'plugins'")
    for name, version in needed.items():
        try:
            here = importlib.metadata.version(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            what = f"the plugin {name!r:.60} in version {version!r:.20}"
            raise ValueError(f"{where}: it needs {what}, which is not installed") from None
        if here != version:
            warn(f"{where}: it was written with {name} {version:.20}; {here} is installed")
