"""The kernels that a maximum mean discrepancy may use: what they compute for a block of pairs, and nothing else.

n rows of x, m rows of y, d feature width
"""

from typing import Protocol

import torch
from torch import Tensor


class Kernel(Protocol):
    """k(x, y) for every pair of two blocks, less `offset`: what every pair shares is added exactly, afterwards.

    Rows come with the reference's mean taken away. A discrepancy does not change when functions of x alone and of y alone
    are added to k; a kernel may leave them out.
    """

    offset: float

    def about(self, mean: Tensor) -> "Kernel":
        """The kernel for rows from which this mean was taken away.  (d,)"""
        ...

    def norms(self, rows: Tensor) -> Tensor:
        """What a row brings to all of its pairs.  (n,)"""
        ...

    def block(self, x: Tensor, xx: Tensor, y: Tensor, yy: Tensor) -> Tensor:
        """k - offset between all rows of x and all rows of y; xx, yy are their norms.  (n, m)"""
        ...


class GaussianKernel:
    """k = exp(-|x - y|^2 / (2 sigma^2)).

    `flat`: the kernel is so wide that every k is near one, where fp32 has no digits left for the difference: k - 1 is
    computed instead. It costs a fifth more time and brings three digits.
    """

    def __init__(self, sigma: float, flat: bool = False) -> None:
        self.sigma, self.flat, self.offset = sigma, flat, 1.0 if flat else 0.0

    def about(self, mean: Tensor) -> "GaussianKernel":
        return self  # it depends on x - y only

    def norms(self, rows: Tensor) -> Tensor:
        return rows.square().sum(dim=1).mul_(-0.5 / self.sigma**2)

    def block(self, x: Tensor, xx: Tensor, y: Tensor, yy: Tensor) -> Tensor:
        exponent = torch.addmm(yy, x, y.T, alpha=1.0 / self.sigma**2)
        exponent.add_(xx[:, None]).clamp_max_(0.0)
        return exponent.expm1_() if self.flat else exponent.exp_()


class PolynomialKernel:
    """k = (x y / d + 1)^3, the kernel of KID (arXiv:1801.01401), without what x or y alone bring.

    Features far from zero make every k huge and nearly alike, and their differences drown in rounding: with means of 3,000
    in 512 dimensions, fp32 was a third off. So it is computed about the reference's mean M. With x = M + a, y = M + b,
    c = |M|^2 / d + 1, p = a M / d, q = b M / d, g = a b / d and t = c + p + q,

        k(x, y) - k(x, M) - k(M, y) + k(M, M) = g (3 t^2 + 3 t g + g^2) + 3 p q (t + c)

    in which every term is as small as the rows' distances from M.
    """

    offset = 0.0

    def __init__(self, mean: Tensor | None = None) -> None:
        self.mean = mean

    def about(self, mean: Tensor) -> "PolynomialKernel":
        return PolynomialKernel(mean)

    def norms(self, rows: Tensor) -> Tensor:
        return rows @ self._mean.to(rows.dtype) / rows.shape[1]

    def block(self, x: Tensor, xx: Tensor, y: Tensor, yy: Tensor) -> Tensor:
        centre = float(self._mean.double().square().mean()) + 1.0
        g = (x @ y.T).div_(x.shape[1])
        t = xx[:, None] + yy
        t += centre
        aside = (t + centre).mul_(yy).mul_(3.0 * xx[:, None])  # 3 p q (t + c)
        inner = (t * 3.0).add_(g).mul_(g)  # 3 t g + g^2
        return inner.addcmul_(t, t, value=3.0).mul_(g).add_(aside)

    @property
    def _mean(self) -> Tensor:
        if self.mean is None:
            raise ValueError("a polynomial kernel is computed about a mean: take kernel.about(mean)")
        return self.mean
