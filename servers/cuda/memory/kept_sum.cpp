#include <coxswain/servers/cuda/memory/kept_sum.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace cox::detail {
namespace {

// In PTX, so that it needs no compiler at run time. See checksum_of().
constexpr std::string_view sum_ptx = R"ptx(
.version 7.0
.target sm_70
.address_size 64
.visible .entry cox_kept_sum_begin(
	.param .u64 checksum,
	.param .u64 name,
	.param .u64 epoch
)
{
	.reg .b64 	%rd<6>;
	ld.param.u64 	%rd1, [checksum];
	ld.param.u64 	%rd2, [name];
	ld.param.u64 	%rd3, [epoch];
	cvta.to.global.u64 	%rd4, %rd1;
	mov.u64 	%rd5, 0;
	st.global.u64 	[%rd4], %rd2;
	st.global.u64 	[%rd4+8], %rd3;
	st.global.u64 	[%rd4+16], %rd5;
	ret;
}
.visible .entry cox_kept_sum(
	.param .u64 memory,
	.param .u64 bytes,
	.param .u64 checksum
)
{
	.reg .pred 	%p<8>;
	.reg .b32 	%r<20>;
	.reg .b64 	%rd<40>;
	ld.param.u64 	%rd1, [memory];
	ld.param.u64 	%rd2, [bytes];
	ld.param.u64 	%rd3, [checksum];
	cvta.to.global.u64 	%rd1, %rd1;
	cvta.to.global.u64 	%rd3, %rd3;
	mov.u32 	%r1, %ctaid.x;
	mov.u32 	%r2, %ntid.x;
	mov.u32 	%r3, %tid.x;
	mov.u32 	%r4, %nctaid.x;
	mul.wide.u32 	%rd4, %r1, %r2;
	cvt.u64.u32 	%rd5, %r3;
	add.u64 	%rd6, %rd4, %rd5;
	mul.wide.u32 	%rd7, %r4, %r2;
	shr.u64 	%rd8, %rd2, 4;
	mov.u64 	%rd9, 0;
	mov.u64 	%rd10, 0x9e3779b97f4a7c15;
	shl.b64 	%rd11, %rd6, 1;
	add.u64 	%rd12, %rd11, 1;
	mul.lo.u64 	%rd13, %rd12, %rd10;
	shl.b64 	%rd14, %rd7, 1;
	mul.lo.u64 	%rd15, %rd14, %rd10;
	shl.b64 	%rd16, %rd6, 4;
	add.u64 	%rd17, %rd1, %rd16;
	shl.b64 	%rd18, %rd7, 4;
	mov.u64 	%rd19, %rd6;
$LOOP:
	setp.ge.u64 	%p1, %rd19, %rd8;
	@%p1 bra 	$REST;
	ld.global.v2.u64 	{%rd20, %rd21}, [%rd17];
	add.u64 	%rd20, %rd20, %rd13;
	add.u64 	%rd22, %rd13, %rd10;
	add.u64 	%rd21, %rd21, %rd22;
	shr.u64 	%rd39, %rd20, 30;
	xor.b64 	%rd20, %rd20, %rd39;
	mul.lo.u64 	%rd20, %rd20, 0xbf58476d1ce4e5b9;
	shr.u64 	%rd39, %rd20, 27;
	xor.b64 	%rd20, %rd20, %rd39;
	mul.lo.u64 	%rd20, %rd20, 0x94d049bb133111eb;
	shr.u64 	%rd39, %rd20, 31;
	xor.b64 	%rd20, %rd20, %rd39;
	shr.u64 	%rd39, %rd21, 30;
	xor.b64 	%rd21, %rd21, %rd39;
	mul.lo.u64 	%rd21, %rd21, 0xbf58476d1ce4e5b9;
	shr.u64 	%rd39, %rd21, 27;
	xor.b64 	%rd21, %rd21, %rd39;
	mul.lo.u64 	%rd21, %rd21, 0x94d049bb133111eb;
	shr.u64 	%rd39, %rd21, 31;
	xor.b64 	%rd21, %rd21, %rd39;
	add.u64 	%rd9, %rd9, %rd20;
	add.u64 	%rd9, %rd9, %rd21;
	add.u64 	%rd19, %rd19, %rd7;
	add.u64 	%rd17, %rd17, %rd18;
	add.u64 	%rd13, %rd13, %rd15;
	bra.uni 	$LOOP;
$REST:
	and.b64 	%rd25, %rd2, 15;
	setp.ne.u64 	%p2, %rd6, 0;
	@%p2 bra 	$REDUCE;
	setp.eq.u64 	%p3, %rd25, 0;
	@%p3 bra 	$REDUCE;
	shl.b64 	%rd26, %rd8, 4;
	add.u64 	%rd27, %rd1, %rd26;
	ld.global.u64 	%rd28, [%rd27];
	shl.b64 	%rd29, %rd8, 1;
	add.u64 	%rd30, %rd29, 1;
	mul.lo.u64 	%rd31, %rd30, %rd10;
	cvt.u32.u64 	%r5, %rd25;
	setp.ge.u32 	%p4, %r5, 8;
	@%p4 bra 	$WHOLE;
	shl.b32 	%r6, %r5, 3;
	mov.u64 	%rd32, 1;
	shl.b64 	%rd32, %rd32, %r6;
	sub.u64 	%rd32, %rd32, 1;
	and.b64 	%rd28, %rd28, %rd32;
$WHOLE:
	add.u64 	%rd28, %rd28, %rd31;
	shr.u64 	%rd39, %rd28, 30;
	xor.b64 	%rd28, %rd28, %rd39;
	mul.lo.u64 	%rd28, %rd28, 0xbf58476d1ce4e5b9;
	shr.u64 	%rd39, %rd28, 27;
	xor.b64 	%rd28, %rd28, %rd39;
	mul.lo.u64 	%rd28, %rd28, 0x94d049bb133111eb;
	shr.u64 	%rd39, %rd28, 31;
	xor.b64 	%rd28, %rd28, %rd39;
	add.u64 	%rd9, %rd9, %rd28;
	setp.le.u32 	%p5, %r5, 8;
	@%p5 bra 	$REDUCE;
	sub.u32 	%r7, %r5, 8;
	shl.b32 	%r7, %r7, 3;
	mov.u64 	%rd34, 1;
	shl.b64 	%rd34, %rd34, %r7;
	sub.u64 	%rd34, %rd34, 1;
	ld.global.u64 	%rd35, [%rd27+8];
	and.b64 	%rd35, %rd35, %rd34;
	add.u64 	%rd36, %rd31, %rd10;
	add.u64 	%rd35, %rd35, %rd36;
	shr.u64 	%rd39, %rd35, 30;
	xor.b64 	%rd35, %rd35, %rd39;
	mul.lo.u64 	%rd35, %rd35, 0xbf58476d1ce4e5b9;
	shr.u64 	%rd39, %rd35, 27;
	xor.b64 	%rd35, %rd35, %rd39;
	mul.lo.u64 	%rd35, %rd35, 0x94d049bb133111eb;
	shr.u64 	%rd39, %rd35, 31;
	xor.b64 	%rd35, %rd35, %rd39;
	add.u64 	%rd9, %rd9, %rd35;
$REDUCE:
	bar.warp.sync 	0xffffffff;
	mov.u32 	%r8, 16;
$HALVE:
	mov.b64 	{%r9, %r10}, %rd9;
	shfl.sync.down.b32 	%r11, %r9, %r8, 31, 0xffffffff;
	shfl.sync.down.b32 	%r12, %r10, %r8, 31, 0xffffffff;
	mov.b64 	%rd38, {%r11, %r12};
	add.u64 	%rd9, %rd9, %rd38;
	shr.u32 	%r8, %r8, 1;
	setp.ne.u32 	%p6, %r8, 0;
	@%p6 bra 	$HALVE;
	and.b32 	%r13, %r3, 31;
	setp.ne.u32 	%p7, %r13, 0;
	@%p7 bra 	$END;
	red.global.add.u64 	[%rd3+16], %rd9;
$END:
	ret;
}
)ptx";

std::span<const std::byte> sum_image() { return std::as_bytes(std::span(sum_ptx)); }

}  // namespace

const CudaKernel& kept_sum_begin_kernel() {
  static const CudaKernel kernel = CudaKernel::from_image(kept_sum_begin_name, CubeDim::single(), sum_image());
  return kernel;
}

const CudaKernel& kept_sum_kernel() {
  static const CudaKernel kernel = CudaKernel::from_image(kept_sum_name, CubeDim{kept_sum_threads, 1, 1}, sum_image());
  return kernel;
}

}  // namespace cox::detail
