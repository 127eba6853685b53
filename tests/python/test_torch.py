"""svdserve.torch: values beside torch's own, gradients beside differences, and what holds where there is none."""

import importlib.util
import math

import numpy as np
import pytest

import svdserve
from svdserve import linalg

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch

import svdserve.torch as st

DTYPES = [torch.float64, torch.complex128]
SHAPES = [(2, 3, 3), (2, 2, 4), (3, 1, 4, 2)]


@pytest.fixture(autouse=True)
def shared(address):
    """The client that the functions share."""
    torch.manual_seed(7)
    with svdserve.Client(address) as client:
        linalg.use(client)
        yield client
        linalg.use(None)


def random(*shape, dtype=torch.complex128, grad=True):
    return torch.randn(*shape, dtype=dtype, requires_grad=grad)


def of_values(*values, dtype=torch.complex128, rows=None):
    """A matrix with these singular values."""
    k = len(values)
    u, v = (torch.linalg.qr(torch.randn(n, k, dtype=dtype))[0] for n in (rows or k, k))
    return (u * torch.tensor(values) @ v.mH).to(dtype).requires_grad_()


def spectral(a, f):
    """U f(S) V^H."""
    u, s, vh = st.svd(a)
    return (u * f(s)[..., None, :]) @ vh


def cubed(s):
    return s ** 3


SMOOTH = {
    "capacity": lambda h: st.capacity(h, [0, 10]),
    "capacity of one SNR": lambda h: st.capacity(h, 7),
    "water-filling": lambda h: st.capacity(h, [0, 15], water_filling=True),
    "log_det": lambda h: st.log_det(h, 3),
    "a function of values": lambda h: (st.svdvals(h) ** 4).sum(-1),
}
FUNCTIONS = {
    **SMOOTH,
    "effective_rank": st.effective_rank,
    "svdvals": st.svdvals,
    "svd": lambda a: (spectral(a, torch.exp), spectral(a, torch.ones_like), st.svd(a).U[..., :1].abs(), st.svd(a).S),
    "eigh": lambda a: eigh_of(a @ a.mH),
}


def eigh_of(a):
    w, v = st.eigh((a + a.mH) / 2)
    return w, v.abs(), (v * torch.cos(w)[..., None, :]) @ v.mH


# --- gradients against differences ----------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_distinct_values(name, dtype, shape):
    a = random(*shape, dtype=dtype)
    if name == "eigh":
        a = random(2, 3, 3, dtype=dtype)
    assert torch.autograd.gradcheck(FUNCTIONS[name], (a,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("values", [(2, 2, 2), (3, 1, 1), (3, 1, 0), (3, 0, 0), (0, 0, 0)])
@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_functions_where_values_are_equal_or_zero(name, values, dtype):
    assert torch.autograd.gradcheck(SMOOTH[name], (of_values(*values, dtype=dtype),))
    assert torch.autograd.gradcheck(SMOOTH[name], (of_values(*values, dtype=dtype, rows=5),))
    exactly = torch.diag(torch.tensor(values, dtype=dtype)).requires_grad_()  # not by rounding alone
    assert torch.autograd.gradcheck(SMOOTH[name], (exactly,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("values", [(2, 2, 2), (3, 1, 1)])
def test_the_effective_rank_where_values_are_equal(values, dtype):
    assert torch.autograd.gradcheck(st.effective_rank, (of_values(*values, dtype=dtype),))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_effective_rank_of_less_than_full_rank_is_that_among_matrices_of_the_rank(dtype):
    left, right = random(4, 2, dtype=dtype), random(2, 3, dtype=dtype)
    assert torch.autograd.gradcheck(lambda left, right: st.effective_rank(left @ right), (left, right))
    a = torch.diag(torch.tensor([3.0, 1, 0], dtype=dtype)).requires_grad_()
    st.effective_rank(a).backward()
    assert a.grad[2, 2] == 0 and a.grad[0, 0] != 0
    zero = torch.zeros(3, 3, dtype=dtype, requires_grad=True)
    st.effective_rank(zero).backward()
    assert not zero.grad.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("values", [(2, 2, 2), (3, 1, 1)])
def test_symmetric_functions_of_equal_values(values, dtype):
    a = of_values(*values, dtype=dtype)
    assert torch.autograd.gradcheck(lambda a: torch.stack([st.svdvals(a).sum(), st.svdvals(a).norm()]), (a,))


def test_the_nuclear_norm_has_its_smallest_subgradient():
    a = torch.diag(torch.tensor([3.0, 2, 0], dtype=torch.float64)).requires_grad_()
    st.svdvals(a).sum().backward()
    assert torch.allclose(a.grad, torch.diag(torch.tensor([1.0, 1, 0], dtype=torch.float64)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("values", [(2, 2, 2), (3, 1, 1), (2, 2, 1)])
def test_vectors_of_equal_values(values, dtype):
    """U V^H, and projectors on all vectors of a value."""
    a = of_values(*values, dtype=dtype)
    target = torch.randn(3, 3, dtype=dtype)

    def polar(a):
        return (spectral(a, torch.ones_like) - target).norm()

    assert torch.autograd.gradcheck(polar, (a,))
    assert torch.autograd.gradcheck(polar, (of_values(*values, dtype=dtype, rows=3),))
    groups = {(3, 1, 1): slice(0, 1), (2, 2, 1): slice(0, 2)}
    if values in groups:
        kept = groups[values]

        def projector(a):
            u, _, vh = st.svd(a)
            return u[:, kept] @ u[:, kept].mH, vh[kept].mH @ vh[kept]

        assert torch.autograd.gradcheck(projector, (a,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_of_a_zero_value(dtype):
    assert torch.autograd.gradcheck(lambda a: spectral(a, cubed), (of_values(3, 1, 0, dtype=dtype),))
    zero = torch.zeros(3, 2, dtype=dtype, requires_grad=True)
    spectral(zero, torch.ones_like).abs().sum().backward()
    assert zero.grad.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_eigenvalues(dtype):
    q = torch.linalg.qr(torch.randn(3, 3, dtype=dtype))[0]
    a = (q * torch.tensor([-1.0, 2, 2]) @ q.mH).requires_grad_()

    def symmetric(a):
        w, v = st.eigh((a + a.mH) / 2)
        return w.exp().sum(), v[:, 1:] @ v[:, 1:].mH, v[:, :1] @ v[:, :1].mH

    assert torch.autograd.gradcheck(symmetric, (a,))
    st.eigh(a).eigenvectors.abs().sum().backward()
    assert a.grad.isfinite().all() and torch.allclose(a.grad, a.grad.mH)


@pytest.mark.parametrize("dtype", DTYPES)
def test_second_derivatives(dtype):
    a = random(2, 3, 2, dtype=dtype)
    assert torch.autograd.gradgradcheck(st.svdvals, (a,))
    assert torch.autograd.gradgradcheck(lambda a: spectral(a, torch.exp), (a,))
    square = random(3, 3, dtype=dtype)
    assert torch.autograd.gradgradcheck(lambda a: eigh_of(a)[2], (square,))
    for function in (lambda h: st.log_det(h, 3), st.effective_rank):
        (gradient,) = torch.autograd.grad(function(a).sum(), a, create_graph=True)
        with pytest.raises(NotImplementedError, match="^h: .*svdserve.torch.svdvals"):
            gradient.abs().sum().backward()


# --- against torch --------------------------------------------------------------------------------


def slogdet(h, snr_db):
    snr = 10 ** (snr_db / 10)
    return torch.linalg.slogdet(torch.eye(h.shape[-2], dtype=h.dtype) + snr / h.shape[-1] * h @ h.mH).logabsdet


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(50, 4, 4), (5, 2, 8, 3), (7, 2, 5)])
def test_as_torch(dtype, shape):
    mine = random(*shape, dtype=dtype)
    theirs = mine.detach().clone().requires_grad_()
    found, expected = st.log_det(mine, 10), slogdet(theirs, 10)
    tolerance = 1e-4 if found.dtype == torch.float32 else 1e-11
    assert found.dtype == expected.dtype and torch.allclose(found, expected, rtol=tolerance)
    assert torch.allclose(st.capacity(mine, [10, 0])[..., 0], expected / math.log(2), rtol=tolerance)
    (found ** 2).mean().backward()
    (expected ** 2).mean().backward()
    assert mine.grad.dtype == dtype and (mine.grad - theirs.grad).norm() <= tolerance * theirs.grad.norm()
    mine.grad = theirs.grad = None
    for function in (lambda x: st.svdvals(x), lambda x: torch.linalg.svdvals(x)):
        x = mine if mine.grad is None else theirs
        function(x).exp().sum().backward()
    assert (mine.grad - theirs.grad).norm() <= tolerance * theirs.grad.norm()


def test_decompositions_as_torchs():
    a = random(6, 5, 3, dtype=torch.complex64)
    u, s, vh = found = st.svd(a)
    assert torch.allclose(u * s[:, None] @ vh, a, atol=1e-5) and torch.allclose(s, torch.linalg.svdvals(a))
    assert isinstance(found, svdserve.SVDResult) and found.status.tolist() == [0] * 6 and found.S.grad_fn is not None
    b = a.mH @ a
    w, v = st.eigh(b)
    assert torch.allclose(w, torch.linalg.eigvalsh(b), atol=1e-4) and torch.allclose(v * w[:, None] @ v.mH, b, atol=1e-4)


# --- one call a step ------------------------------------------------------------------------------


class Counting(svdserve.Client):
    """A client that remembers its calls."""

    def __init__(self, address):
        super().__init__(address)
        self.calls = []

    def _run(self, call, *rest):
        self.calls.append((call.named[0], call.query.vectors, bool(call.query.mimo and call.query.mimo.gradient)))
        return super()._run(call, *rest)


def test_a_step_is_one_call(address):
    h = random(5, 3, 3)
    with Counting(address) as client:
        for function in (lambda: st.capacity(h, [1, 2], client=client), lambda: st.effective_rank(h, client=client)):
            function().sum().backward()
        assert client.calls == [("mimo", "none", True)] * 2
        client.calls.clear()
        with torch.no_grad():
            st.capacity(h, 3, True, client=client)
        st.log_det(h.detach(), 3, client=client)
        assert client.calls == [("mimo", "none", False)] * 2
        client.calls.clear()
        st.svdvals(h.detach(), client=client)
        st.svdvals(h, client=client).sum().backward()
        assert client.calls == [("svdvals", "none", False), ("svd", "thin", False)]
        client.calls.clear()
        torch.func.vmap(torch.func.grad(lambda h: st.capacity(h, 3, client=client)))(h)
        assert len(client.calls) == 1


# --- kinds of tensors -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype, real", [(torch.bfloat16,) * 2, (torch.float16,) * 2, (torch.complex32, torch.float16)])
def test_half_precision(dtype, real):
    a = torch.randn(3, 2, 2, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype).requires_grad_()
    u, s, vh = st.svd(a)
    assert (u.dtype, s.dtype, vh.dtype, st.log_det(a, 3).dtype) == (dtype, real, dtype, real)
    st.log_det(a, 3).sum().backward()
    wide = a.detach().to(torch.complex64 if dtype.is_complex else torch.float32).requires_grad_()
    st.log_det(wide, 3).sum().backward()
    assert a.grad.dtype == dtype and torch.equal(a.grad.to(wide.dtype), wide.grad.to(dtype).to(wide.dtype))


def test_views_and_empty_batches():
    a = random(4, 3, 2)
    assert torch.autograd.gradcheck(lambda a: st.log_det(a.mH, 3), (a,))
    assert torch.autograd.gradcheck(lambda a: st.svdvals(a.mT[1:]), (a,))
    assert st.svdvals(torch.eye(2, dtype=torch.int32)).dtype == torch.float64
    for shape in ((0, 3, 3), (2, 0, 3)):
        a = random(*shape)
        u, s, vh = st.svd(a)
        (u.abs().sum() + s.sum() + vh.abs().sum()).backward()
        assert a.grad.shape == shape
    a = random(0, 2, 3)
    st.capacity(a, [1, 2]).sum().backward()
    assert a.grad.shape == (0, 2, 3)


def test_a_matrix_with_a_nan_keeps_to_itself():
    h = random(3, 2, 2, dtype=torch.float64, grad=False)
    h[1, 0, 0] = math.nan
    for function in (lambda h: st.capacity(h, 3), st.effective_rank, st.svdvals, lambda h: spectral(h, torch.exp)):
        x = h.clone().requires_grad_()
        function(x).sum().backward()
        assert x.grad[1].isnan().all() and x.grad[[0, 2]].isfinite().all()


def test_transforms():
    h = random(5, 3, 2, dtype=torch.float64, grad=False)

    def each(h):
        return st.capacity(h, 10)

    gradients = torch.func.vmap(torch.func.grad(each))(h)
    assert torch.allclose(gradients, torch.func.grad(lambda h: each(h).sum())(h))
    assert torch.equal(torch.func.vmap(lambda h: st.capacity(h, [1, 2]), in_dims=1, out_dims=1)(h.movedim(0, 1)).mT,
                       st.capacity(h, [1, 2]))
    jacobian = torch.func.vmap(torch.func.jacrev(st.svdvals))(h)
    u, _, vh = st.svd(h)
    assert torch.allclose(jacobian, torch.einsum("bik,bkj->bkij", u, vh))
    hessian = torch.func.jacrev(torch.func.grad(lambda a: (st.svdvals(a) ** 2).sum()))(h[0])
    assert torch.allclose(hessian.reshape(6, 6), 2 * torch.eye(6, dtype=h.dtype), atol=1e-9)
    complex_ = random(4, 3, 3, grad=False)
    assert torch.func.vmap(torch.func.grad(lambda a: spectral(a, torch.exp).abs().sum()))(complex_).shape == complex_.shape
    with pytest.raises(NotImplementedError, match="svdserve.torch.svdvals"):
        torch.func.grad(lambda h: torch.func.grad(lambda h: each(h).sum())(h).sum())(h)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jacfwd(each)(h)


# --- mistakes -------------------------------------------------------------------------------------


def test_a_loss_that_depends_on_phases():
    a = random(3, 2)
    with pytest.raises(ValueError, match="the loss depends on the phases"):
        st.svd(a).U.real.sum().backward()
    with pytest.raises(ValueError, match="the loss depends on the phases"):
        torch.func.vmap(torch.func.grad(lambda a: st.svd(a).Vh.imag.sum()))(random(4, 2, 2, grad=False))
    with pytest.raises(ValueError, match="the loss depends on the phases"):
        st.eigh(a.mH @ a).eigenvectors.real.sum().backward()


def test_messages(address):
    with pytest.raises(TypeError, match=r"^a: must be a torch.Tensor, but is ndarray; pass torch.as_tensor\(a\)"):
        st.svd(np.eye(2))
    with pytest.raises(TypeError, match="^h: must be a torch.Tensor"):
        st.capacity([[1]], 3)
    with pytest.raises(TypeError, match=r"^snr_db: has no gradient; pass snr_db.detach\(\)"):
        st.capacity(torch.eye(2), torch.tensor(3.0, requires_grad=True))
    assert st.capacity(torch.eye(2), torch.tensor([3.0, 4.0])).shape == (2,)
    with pytest.raises(svdserve.InvalidArgument, match="^snr_db: must be a number"):
        st.log_det(torch.eye(2), [[3]])
    with pytest.raises(TypeError, match=r"^a: must be a dense tensor.*a.to_dense\(\)"):
        st.svdvals(torch.eye(2).to_sparse())
    with pytest.raises(np.linalg.LinAlgError, match="square"):
        st.eigh(torch.ones(2, 3))
