# SPDX-License-Identifier: Apache-2.0
"""Swin models of torchvision, and how long calls take: what programs here
share."""
import statistics
import time

import torch
import torchvision
from torchvision.models import swin_transformer

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def make(name):
    torch.manual_seed(1)
    if name != "swin_v2_t_p2_w16":
        return getattr(torchvision.models, name)()
    return swin_transformer.SwinTransformer(
        patch_size=[2, 2], embed_dim=96, depths=[2, 2, 6, 2],
        num_heads=[3, 6, 12, 24], window_size=[16, 16],
        block=swin_transformer.SwinTransformerBlockV2,
        downsample_layer=swin_transformer.PatchMergingV2)


def wait():
    if GPU:
        torch.cuda.synchronize()


def median_of(call, seconds):
    """Milliseconds of a call, each with the device idle before and after."""
    for _ in range(3):
        call()
    wait()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        wait()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def graph_of(call):
    """The call, recorded once."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay
