"""recorded_run.py - What the recorder keeps of a run equals what the run had; needs torch.

    python recorded_run.py FOLDER    prints nothing where all holds

A drawn run of AdamW is recorded, and its gradients, parameters and states are kept beside by the
script itself.  The run is repeated with an interruption, a checkpoint and a resumed recorder: the
file is the same to the byte.  Then two processes share its tensors by fully_shard: their merged
file has the gradients that both saw, whole."""
import os
import random
import sys

import numpy
import torch

sys.path[:0] = [os.path.dirname(__file__)]
from merge_drawn import arrays, qualm_record  # noqa: E402

TRACE, STATES = range(4, 9), [3, 8]


def make(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(7, 12), torch.nn.ReLU(), torch.nn.Linear(12, 5))
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}],
                                  lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def train(parts, steps, kept=None):
    model, optimizer, schedule = parts
    for t in steps:
        torch.manual_seed(1000 + t)
        optimizer.zero_grad()
        (model(torch.randn(6, 7)) - torch.randn(6, 5)).square().mean().backward()
        if kept is not None:
            for n, p in model.named_parameters():
                s = optimizer.state.get(p) or {}
                kept[t, n] = [x.detach().numpy().copy() for x in (
                    p.grad, p, s.get("exp_avg", torch.zeros(p.shape)),
                    s.get("exp_avg_sq", torch.zeros(p.shape)))]
        optimizer.step()
        schedule.step()


def check_kept(path, kept):
    texts, got = arrays(path)
    leaves = ("grad", "param", "exp_avg", "exp_avg_sq")
    for n in {n for _, n in kept}:
        assert texts["/run/trace/%s@weight_decay" % n] == ("0.1" if "weight" in n else "0.0")
        grads = numpy.stack([kept[t, n][0] for t in TRACE])
        assert got.pop("run/trace/%s/grad" % n).tobytes() == grads.tobytes(), n
        for t in STATES:
            for k, leaf in enumerate(leaves):
                x = got.pop("run/s%06d/%s/%s" % (t, n, leaf))
                assert x.tobytes() == kept[t, n][k].tobytes(), (t, n, leaf)
        for k, leaf in enumerate(leaves[1:], 1):
            x = got.pop("run/trace/%s/%s_init" % (n, leaf))
            assert x.tobytes() == kept[TRACE[0], n][k].tobytes(), (n, leaf)
    assert numpy.allclose(got.pop("run/trace/lr"), [1e-2 * 0.9 ** (t - 1) for t in TRACE])
    assert not got, got.keys()


def refused(text, action):
    try:
        action()
    except qualm_record.Refused as e:
        assert text in str(e), e
        return
    raise AssertionError("not refused: " + text)


def check_refusals(folder):
    def recorder(parts, **k):
        return qualm_record.Recorder(folder + "/x.safetensors", parts[0], parts[1], **k)
    parts = make(1)
    refused("range(first, last + 1)", lambda: recorder(parts, trace=[4, 6]))
    refused("add states=[100, 400]", lambda: recorder(parts))
    refused("no option state=; it has states", lambda: recorder(parts, state=[1]))
    refused("counted from 1", lambda: recorder(parts, states=[0]))
    refused("matches none", lambda: recorder(parts, states=[1], tensors="absent"))
    refused("beyond max_bytes=10", lambda: recorder(parts, states=[1], max_bytes=10))
    sgd = torch.optim.SGD(parts[0].parameters(), lr=0.1)
    refused("momentum=0.9", lambda: recorder((parts[0], sgd), states=[1]))
    sgd = torch.optim.SGD(parts[0].parameters(), lr=0.1, momentum=0.9)
    train((parts[0], sgd, parts[2]), [1])
    r = recorder((parts[0], sgd), states=[2])
    refused("add step=N", lambda: train((parts[0], sgd, parts[2]), [2]))
    r.hook.remove()
    parts[1].grad_scale = torch.ones(())
    r = recorder(parts, states=[1])
    refused("scaler.unscale_(optimizer)", lambda: train(parts, [1]))
    r.hook.remove()


def check_bounds(folder):
    parts, out = make(2), folder + "/cut.safetensors"
    r = qualm_record.Recorder(out, *parts[:2], trace=range(1, 4), max_elements=40, max_bytes=3000)
    kept = {}
    train(parts, [1, 2], kept)
    r.close()
    texts, got = arrays(out)
    assert "0.weight (5 of 12 rows)" in texts["left_out"], texts["left_out"]
    assert "updates 3 to 3 of the trace" in texts["left_out"], texts["left_out"]
    assert texts["/cut/trace/0.weight@row_range"] == "[0, 5]"
    assert (got["cut/trace/0.weight/grad"][1] == kept[2, "0.weight"][0][:5]).all()
    assert sum(x.nbytes for x in got.values()) <= 3000


def rank_run(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2], RANK=str(rank),
                      WORLD_SIZE="2")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    from torch.distributed.fsdp import fully_shard
    model = make(3)[0]
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    r = qualm_record.Recorder(folder + "/shard.safetensors", model, optimizer, trace=range(1, 4))
    whole = {}
    for t in range(1, 4):
        torch.manual_seed(10 * t + rank)
        optimizer.zero_grad()
        (model(torch.randn(6, 7)) - torch.randn(6, 5)).square().mean().backward()
        for n, p in model.named_parameters():
            whole.setdefault(n, []).append(p.grad.full_tensor().numpy().copy())
        optimizer.step()
    r.close()
    if rank == 0:
        texts, got = arrays(folder + "/shard.safetensors")
        assert texts["/shard@ranks"] == "2"
        for n, grads in whole.items():
            assert got["shard/trace/%s/grad" % n].tobytes() == numpy.stack(grads).tobytes(), n
    torch.distributed.destroy_process_group()


def main(folder):
    torch.set_num_threads(1)
    kept, parts, out = {}, make(5), folder + "/run.safetensors"
    r = qualm_record.Recorder(out, *parts[:2], states=STATES, trace=TRACE)
    train(parts, range(1, 10), kept)
    r.close()
    check_kept(out, kept)
    whole = open(out, "rb").read()
    parts, stop = make(5), random.Random(9).randint(4, 7)
    qualm_record.Recorder(out, *parts[:2], states=STATES, trace=TRACE)
    train(parts, range(1, stop))
    saved = [x.state_dict() for x in parts]
    torch.save(saved, folder + "/stop.pt")
    train(parts, range(stop, stop + 2))  # lost: the recorder never closes
    parts = make(6)
    for x, s in zip(parts, torch.load(folder + "/stop.pt")):
        x.load_state_dict(s)
    r = qualm_record.Recorder(out, *parts[:2], states=STATES, trace=TRACE)
    train(parts, range(stop, 10))
    r.close()
    assert open(out, "rb").read() == whole
    check_refusals(folder)
    check_bounds(folder)
    torch.multiprocessing.spawn(rank_run, (folder,), nprocs=2)


if __name__ == "__main__":
    main(sys.argv[1])
