#include <coxswain/servers/cuda/memory/kept_mark.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace cox::detail {
namespace {

// What KeptMarkChange::apply does, in PTX, so that it needs no compiler at run time. Where apply() returns false it
// traps: the record belongs to a later process, and this one must not write its memory.
//
// kind: 0 adopt, 1 begin, 2 commit; copy: -1: as it is.
constexpr std::string_view ptx = R"ptx(
.version 7.0
.target sm_70
.address_size 64
.visible .entry cox_kept_mark(
	.param .u64 record,
	.param .u32 kind,
	.param .u64 generation,
	.param .u64 epoch,
	.param .u32 two_copies,
	.param .u32 copy
)
{
	.reg .pred 	%p<19>;
	.reg .b32 	%r<11>;
	.reg .b64 	%rd<37>;
	ld.param.u64 	%rd9, [record];
	ld.param.u32 	%r2, [kind];
	ld.param.u64 	%rd7, [generation];
	ld.param.u64 	%rd8, [epoch];
	ld.param.u32 	%r3, [two_copies];
	ld.param.u32 	%r4, [copy];
	cvta.to.global.u64 	%rd1, %rd9;
	ld.volatile.global.u64 	%rd32, [%rd1];
	setp.eq.s32 	%p1, %r2, 0;
	@%p1 bra 	$L13;
	and.b64  	%rd3, %rd32, 4398046511103;
	shr.u64 	%rd10, %rd32, 42;
	cvt.u32.u64 	%r5, %rd10;
	and.b32  	%r1, %r5, 1;
	shr.u64 	%rd11, %rd32, 44;
	setp.eq.s64 	%p2, %rd11, %rd7;
	@%p2 bra 	$L3;
	trap;
$L3:
	setp.eq.s32 	%p3, %r2, 1;
	@%p3 bra 	$L9;
	bra.uni 	$L4;
$L9:
	setp.eq.s64 	%p10, %rd8, 0;
	setp.lt.u64 	%p11, %rd3, %rd8;
	or.pred  	%p12, %p10, %p11;
	@%p12 bra 	$L11;
	trap;
$L11:
	add.s64 	%rd21, %rd3, 1;
	selp.b64 	%rd22, %rd21, %rd8, %p10;
	setp.gt.s32 	%p14, %r4, -1;
	selp.b32 	%r9, %r4, %r1, %p14;
	and.b64  	%rd33, %rd32, 8796093022208;
	setp.eq.s64 	%p17, %rd33, 0;
	setp.eq.s32 	%p18, %r9, %r1;
	or.pred  	%p17, %p17, %p18;
	@%p17 bra 	$L12;
	add.s32 	%r10, %r9, 1;
	mul.wide.u32 	%rd34, %r10, 8;
	add.s64 	%rd35, %rd1, %rd34;
	mov.u64 	%rd36, 0;
	st.global.u64 	[%rd35], %rd36;
	membar.sys;
$L12:
	cvt.u64.u32 	%rd23, %r9;
	shl.b64 	%rd24, %rd23, 42;
	shl.b64 	%rd25, %rd7, 44;
	or.b64  	%rd26, %rd25, %rd22;
	or.b64  	%rd27, %rd26, %rd24;
	or.b64  	%rd28, %rd27, 8796093022208;
	atom.global.sys.cas.b64 	%rd29, [%rd1], %rd32, %rd28;
	setp.eq.s64 	%p15, %rd29, %rd32;
	@%p15 bra 	$L15;
	trap;
	bra.uni 	$L15;
$L13:
	shl.b64 	%rd4, %rd7, 44;
$L14:
	and.b64  	%rd30, %rd32, 17592186044415;
	or.b64  	%rd31, %rd30, %rd4;
	atom.global.sys.cas.b64 	%rd6, [%rd1], %rd32, %rd31;
	setp.ne.s64 	%p16, %rd6, %rd32;
	mov.u64 	%rd32, %rd6;
	@%p16 bra 	$L14;
	bra.uni 	$L15;
$L4:
	and.b64  	%rd12, %rd32, 8796093022208;
	setp.eq.s64 	%p4, %rd12, 0;
	@%p4 bra 	$L6;
	setp.eq.s64 	%p5, %rd8, 0;
	setp.eq.s64 	%p6, %rd3, %rd8;
	or.pred  	%p7, %p5, %p6;
	@%p7 bra 	$L7;
$L6:
	trap;
$L7:
	setp.ne.s32 	%p8, %r3, 0;
	selp.u32 	%r6, 1, 0, %p8;
	xor.b32  	%r7, %r1, %r6;
	add.s32 	%r8, %r7, 1;
	mul.wide.u32 	%rd13, %r8, 8;
	add.s64 	%rd14, %rd1, %rd13;
	st.global.u64 	[%rd14], %rd3;
	membar.sys;
	cvt.u64.u32 	%rd15, %r7;
	shl.b64 	%rd16, %rd15, 42;
	shl.b64 	%rd17, %rd7, 44;
	or.b64  	%rd18, %rd3, %rd17;
	or.b64  	%rd19, %rd18, %rd16;
	atom.global.sys.cas.b64 	%rd20, [%rd1], %rd32, %rd19;
	setp.eq.s64 	%p9, %rd20, %rd32;
	@%p9 bra 	$L15;
	trap;
$L15:
	ret;
}
)ptx";

}  // namespace

const CudaKernel& kept_mark_kernel() {
  static const CudaKernel kernel =
      CudaKernel::from_image(kept_mark_name, CubeDim::single(), std::as_bytes(std::span(ptx)));
  return kernel;
}

KeptMarkArguments::KeptMarkArguments(const KeptMarkChange& change) noexcept
    : kind(static_cast<std::uint32_t>(change.kind)),
      generation(change.generation),
      epoch(change.epoch),
      two_copies(change.two_copies ? 1 : 0),
      copy(change.copy ? static_cast<std::int32_t>(*change.copy) : -1) {}

}  // namespace cox::detail
