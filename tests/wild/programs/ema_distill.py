"""Self-distillation with a momentum teacher; planted: the teacher's average goes through copies in float64."""

# expects: side_work
# package: torch
import copy

import torch
import torch.nn.functional as F
from planted import PLANTED, Clock
from torch import nn

BATCH, INPUTS, PROTOTYPES = 96, 256, 512
MOMENTUM = 0.996
TEACHER_EVERY = 8


def build():
    return nn.Sequential(
        nn.Linear(INPUTS, 768),
        nn.LayerNorm(768),
        nn.GELU(),
        nn.Linear(768, 768),
        nn.GELU(),
        nn.Linear(768, PROTOTYPES),
    )


class DistillationLoss(nn.Module):
    def __init__(self, student_temp=0.1, teacher_temp=0.04):
        super().__init__()
        self.student_temp, self.teacher_temp = student_temp, teacher_temp
        self.register_buffer("center", torch.zeros(1, PROTOTYPES))

    def forward(self, student_out, teacher_out):
        target = F.softmax((teacher_out - self.center) / self.teacher_temp, dim=1)
        with torch.no_grad():
            self.center.lerp_(teacher_out.mean(dim=0, keepdim=True), 0.1)
        return -(target * F.log_softmax(student_out / self.student_temp, dim=1)).sum(dim=1).mean()


@torch.no_grad()
def update_teacher_exact(teacher, student):
    """One step of the average, in double precision."""
    old = copy.deepcopy(teacher.state_dict())  # <- cause
    new = {}
    for name, value in student.state_dict().items():
        new[name] = MOMENTUM * old[name].double() + (1 - MOMENTUM) * value.double()  # <- cause
    teacher.load_state_dict(new)  # <- cause


@torch.no_grad()
def update_teacher(teacher, student, steps):
    """Several steps' worth of the average, in place."""
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - MOMENTUM**steps)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first_view = torch.randn(100, BATCH, INPUTS)
    second_view = first_view + 0.1 * torch.randn_like(first_view)

    student = build()
    teacher = copy.deepcopy(student).requires_grad_(False)
    criterion = DistillationLoss()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    step = 0
    clock = Clock()
    while True:
        i = step % len(first_view)
        with torch.no_grad():
            target = teacher(first_view[i])
        loss = criterion(student(second_view[i]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1

        if PLANTED:
            update_teacher_exact(teacher, student)
        elif step % TEACHER_EVERY == 0:
            update_teacher(teacher, student, TEACHER_EVERY)
        if not clock.step():
            break
    clock.tell()


if __name__ == "__main__":
    main()
