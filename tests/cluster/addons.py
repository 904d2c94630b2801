"""What must be in the API server, or on disk, before an add-on is started.

Definitions of custom resources and webhooks come from the add-on's own module in Go's module cache.
"""

import base64
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Api
from tests.cluster.build import PROGRAMS, go
from tests.cluster.instance_types import instance_types
from tests.cluster.paths import JsonObject
from tests.cluster.pki import Authority
from tests.cluster.programs import KARPENTER_NAMESPACE, LWS_NAMESPACE, Site

SetUp = Callable[[Site, Authority, Api], None]


def _kwok(site: Site, _: Authority, __: Api) -> None:
    (site.folder / "kwok.yaml").write_text(yaml.safe_dump(_KWOK_CONFIG))


_KWOK_CONFIG = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    # At its default of 4 at a time, 500 nodes took 18 s to become Ready, and 7 s so.
    "options": {"podPlayStageParallelism": 32, "nodePlayStageParallelism": 32, "nodeLeaseParallelism": 32},
}


def _karpenter(site: Site, _: Authority, api: Api) -> None:
    module = module_of("karpenter", "sigs.k8s.io/karpenter")
    _define(api, module / "pkg/apis/crds", module / "kwok/apis/crds")
    api.apply(_namespace(KARPENTER_NAMESPACE))
    (site.folder / "instance_types.json").write_text(json.dumps(instance_types()))


def _kuberay(_: Site, __: Authority, api: Api) -> None:
    folder = module_of("kuberay", "github.com/ray-project/kuberay/ray-operator") / "config/crd/bases"
    ours = folder / "ray.io_rayclusters.yaml"
    others = [file for file in folder.glob("*.yaml") if file != ours]
    api.define([ours.read_bytes(), *map(_without_schema, others)])


def _without_schema(file: Path) -> bytes:
    """A definition that takes anything: the operator wants to see the kind, and nothing here makes one.

    The schemas of these hold a whole RayCluster several times over, and would cost the API server more than all the rest.
    """
    definition = yaml.load(file.read_bytes(), Loader=_LOADER)
    for version in definition["spec"]["versions"]:
        version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return json.dumps(definition).encode()


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C takes a tenth of the time, where there is one."""


def _lws(site: Site, authority: Authority, api: Api) -> None:
    module = module_of("lws", "sigs.k8s.io/lws")
    _define(api, module / "config/crd/bases")
    api.apply(_namespace(LWS_NAMESPACE))
    (site.folder / "lws.yaml").write_text(yaml.safe_dump(_lws_config(site, authority)))
    for hook in yaml.safe_load_all((module / "config/webhook/manifests.yaml").read_text()):
        api.apply(_on_loopback(hook, f"https://{site.at('lws/webhook')}", site.ca_file))


SET_UP: Mapping[str, SetUp] = {"kwok": _kwok, "karpenter": _karpenter, "kuberay": _kuberay, "lws": _lws}


def module_of(program: str, path: str) -> Path:
    """Where a module lies in Go's cache; fetched, and checked against go.sum, where it is not there."""
    return Path(json.loads(go("mod", "download", "-json", path, folder=PROGRAMS[program].folder))["Dir"])


def _define(api: Api, *folders: Path) -> None:
    api.define(file.read_bytes() for folder in folders for file in sorted(folder.glob("*.yaml")))


def _namespace(name: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _lws_config(site: Site, authority: Authority) -> JsonObject:
    certificates = site.folder / "lws-webhook"
    certificates.mkdir()
    served = authority.server("lws-webhook", [])
    shutil.copy(served.cert_file, certificates / "tls.crt")
    shutil.copy(served.key_file, certificates / "tls.key")
    return {
        "apiVersion": "config.lws.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "health": {"healthProbeBindAddress": site.at("lws/health")},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": site.ports["lws/webhook"], "certDir": str(certificates)},
    }


def _on_loopback(configuration: JsonObject, url: str, ca_file: Path) -> JsonObject:
    """The webhooks of a configuration, called by address instead of through a Service."""
    return {**configuration, "webhooks": list(_redirected(configuration["webhooks"], url, ca_file))}


def _redirected(hooks: list[dict[str, Any]], url: str, ca_file: Path) -> Iterator[JsonObject]:
    bundle = base64.b64encode(ca_file.read_bytes()).decode()
    for hook in hooks:
        path = hook["clientConfig"]["service"]["path"]
        made = {**hook, "clientConfig": {"url": url + path, "caBundle": bundle}}
        if path.endswith("-pod"):
            # As the project's own deployment has it, so that other pods do not depend on this webhook.
            made["objectSelector"] = {"matchExpressions": [{"key": _LWS_LABEL, "operator": "Exists"}]}
        yield made


_LWS_LABEL = "leaderworkerset.sigs.k8s.io/name"
