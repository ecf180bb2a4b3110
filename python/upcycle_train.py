"""The training of python/upcycle.py: experts that share the dense FFN's matrices and differ by low-rank updates."""

import sys
import time

import torch
import torch.nn.functional as F

import upcycle
from make_goldens import model_of


class Experts(torch.nn.Module):
    """A Mixtral block of experts W + B_e A_e of a frozen FFN; x W is computed once for all of them."""

    def __init__(self, mlp, experts, used, rank, type):
        super().__init__()
        self.used, self.type = used, type
        self.base = {name: getattr(mlp, f"{name}_proj").weight.detach().to(type) for name in upcycle.FFN}
        width = self.base["gate"].shape[1]
        self.router = torch.nn.Parameter(torch.zeros(experts, width))
        self.a, self.b = torch.nn.ParameterDict(), torch.nn.ParameterDict()
        for name, w in self.base.items():
            self.a[name] = torch.nn.Parameter(torch.randn(experts, rank, w.shape[1]) / w.shape[1] ** 0.5)
            self.b[name] = torch.nn.Parameter(torch.zeros(experts, w.shape[0], rank))
        self.balance = None   # of the last pass

    def update(self, name, e, x):
        return (x @ self.a[name][e].to(x.dtype).T) @ self.b[name][e].to(x.dtype).T

    def forward(self, x):
        shape, flat = x.shape, x.reshape(-1, x.shape[-1])
        probabilities = F.softmax(flat.float() @ self.router.T, dim=-1)
        weights, chosen = probabilities.topk(self.used, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        experts = len(self.router)
        share = F.one_hot(chosen, experts).sum(1).float().mean(0) / self.used
        self.balance = experts * (share * probabilities.mean(0)).sum()
        narrow = flat.to(self.type)
        gate, up = F.linear(narrow, self.base["gate"]), F.linear(narrow, self.base["up"])
        mixed_h = torch.zeros_like(gate)
        mixed_y = torch.zeros_like(narrow)
        for e in range(experts):
            rows, slot = torch.where(chosen == e)
            if len(rows) == 0:
                continue
            part = narrow[rows]
            h = F.silu(gate[rows] + self.update("gate", e, part)) * (up[rows] + self.update("up", e, part))
            h = h * weights[rows, slot, None].to(h.dtype)
            mixed_h = mixed_h.index_add(0, rows, h)
            mixed_y = mixed_y.index_add(0, rows, self.update("down", e, h))
        return (F.linear(mixed_h, self.base["down"]) + mixed_y).to(x.dtype).reshape(shape)

    def weights(self):
        made = {"router": self.router.detach().numpy()}
        for name, w in self.base.items():
            made[name] = (w.float() + self.b[name].detach() @ self.a[name].detach()).numpy()
        return made


def cluster(x, count):
    """Rows r_e, [count, d], whose scores r_e . x tell clusters of the directions of x : [n, d] apart; scores deviate by 1.5."""
    mean, deviation = x.mean(0), x.std(0) + 1e-6
    z = F.normalize((x - mean) / deviation, dim=1)
    centres = z[torch.randperm(len(z))[:count]]
    for _ in range(30):
        nearest = (z @ centres.T).argmax(1)
        centres = F.normalize(torch.stack([z[nearest == e].mean(0) for e in range(count)]), dim=1)
    rows = centres / deviation
    rows = rows - (rows @ mean / (mean @ mean))[:, None] * mean     # no score is larger for all tokens
    return rows * (1.5 / (x @ rows.T).std(0, keepdim=True).T)


def start_routers(model, ids, blocks):
    """Clusters every layer's inputs on the dense model (all experts are equal so far)."""
    seen, hooks = [[] for _ in blocks], []
    for inputs, block in zip(seen, blocks):
        hooks.append(block.register_forward_pre_hook(lambda _, args, inputs=inputs: inputs.append(args[0].reshape(-1, args[0].shape[-1]))))
    with torch.no_grad():
        for at in range(0, upcycle.CLUSTERED, upcycle.LENGTH):
            model(ids[None, at:at + upcycle.LENGTH])
    for inputs, block, hook in zip(seen, blocks, hooks):
        hook.remove()
        block.router.data = cluster(torch.cat(inputs).float(), len(block.router))


def train(path, ids, experts, used, args):
    model = model_of(path)
    model.requires_grad_(False)
    blocks = [Experts(layer.mlp, experts, used, args.rank, torch.float32 if args.f32 else torch.bfloat16) for layer in model.model.layers]
    for layer, block in zip(model.model.layers, blocks):
        layer.mlp = block
    start_routers(model, ids, blocks)
    parameters = [p for block in blocks for p in block.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=args.rate, betas=(0.9, 0.95), weight_decay=0)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.rate, args.steps, pct_start=0.1, final_div_factor=0.4)
    starts = torch.randperm((len(ids) - 1) // upcycle.LENGTH) * upcycle.LENGTH
    begin = time.monotonic()
    for step in range(args.steps):
        batch = torch.stack([ids[at:at + upcycle.LENGTH + 1] for at in
                             (starts[(step * upcycle.BATCH + i) % len(starts)] for i in range(upcycle.BATCH))])
        with torch.autocast("cpu", torch.bfloat16, enabled=not args.f32):
            logits = model(batch[:, :-1]).logits
        loss = F.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
        balance = torch.stack([block.balance for block in blocks]).mean()
        optimizer.zero_grad()
        (loss + upcycle.BALANCE * balance * len(blocks)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        rates.step()
        if step % 4 == 0 or step + 1 == args.steps:
            print(f"step {step}: loss {loss:.4f}, balance {balance:.3f}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    changed = [float((block.b[name] @ block.a[name]).detach().norm() / (block.base[name].float().norm() * experts ** 0.5))
               for block in blocks for name in upcycle.FFN]
    print(f"updates over weights: mean {sum(changed) / len(changed):.3f}, {min(changed):.3f} to {max(changed):.3f}", file=sys.stderr)
    return [block.weights() for block in blocks]
