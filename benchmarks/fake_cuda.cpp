// A CUDA device that holds no numbers: builds of PyTorch without CUDA let autograd run on fake tensors "on" it.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};

namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks);
}

struct FakeGuard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device getDevice() const override { return {c10::DeviceType::CUDA, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, getDevice()); }
  c10::Stream getNewStream(c10::Device, int = 0) const override { return getStream(getDevice()); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};

C10_REGISTER_GUARD_IMPL(CUDA, FakeGuard)
