//! The allocator that is linked in, if one is, and how much of the C library's own heap is in use.

#[cfg(feature = "hakmem")]
mod hakmem {
    //! hakmem by its own C interface, out of libhakmem.a.
    use std::alloc::{GlobalAlloc, Layout};
    use std::ffi::c_void;

    extern "C" {
        fn hak_malloc(size: usize) -> *mut c_void;
        fn hak_calloc(count: usize, size: usize) -> *mut c_void;
        fn hak_realloc(block: *mut c_void, size: usize) -> *mut c_void;
        fn hak_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
        fn hak_free(block: *mut c_void);
    }

    /// What hak_malloc gives for any size that is a multiple of it; smaller blocks have the
    /// alignment of their size.
    const ALIGNMENT: usize = 16;

    pub struct Hakmem;

    fn plain(layout: &Layout) -> bool {
        layout.align() <= ALIGNMENT && layout.align() <= layout.size()
    }

    unsafe impl GlobalAlloc for Hakmem {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if plain(&layout) {
                hak_malloc(layout.size()).cast()
            } else {
                hak_aligned_alloc(layout.align(), layout.size()).cast()
            }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            if plain(&layout) {
                return hak_calloc(1, layout.size()).cast();
            }
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
            if plain(&layout) && layout.align() <= size {
                return hak_realloc(block.cast(), size).cast();
            }
            let fresh = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !fresh.is_null() {
                fresh.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            fresh
        }

        unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
            hak_free(block.cast())
        }
    }
}

// mimalloc3 alone is the crate's default generation; mimalloc2 adds a feature of the crate.
#[cfg(any(feature = "mimalloc2", feature = "mimalloc3"))]
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static GLOBAL: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[cfg(feature = "snmalloc")]
#[global_allocator]
static GLOBAL: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

#[cfg(feature = "rpmalloc")]
#[global_allocator]
static GLOBAL: rpmalloc::RpMalloc = rpmalloc::RpMalloc;

#[cfg(feature = "hakmem")]
#[global_allocator]
static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;

/// The feature that this was built with; "system" for none.
pub const NAME: &str = if cfg!(feature = "mimalloc2") {
    "mimalloc2"
} else if cfg!(feature = "mimalloc3") {
    "mimalloc3"
} else if cfg!(feature = "jemalloc") {
    "jemalloc"
} else if cfg!(feature = "snmalloc") {
    "snmalloc"
} else if cfg!(feature = "rpmalloc") {
    "rpmalloc"
} else if cfg!(feature = "hakmem") {
    "hakmem"
} else {
    "system"
};

/// glibc's struct mallinfo2.
#[repr(C)]
struct MallInfo {
    arena: usize,
    free_chunks: usize,
    fast_chunks: usize,
    mapped_chunks: usize,
    mapped_bytes: usize,
    unused: usize,
    fast_bytes: usize,
    used_bytes: usize,
    free_bytes: usize,
    keep_cost: usize,
}

extern "C" {
    fn dlopen(name: *const std::ffi::c_char, flags: i32) -> *mut std::ffi::c_void;
    fn dlsym(
        handle: *mut std::ffi::c_void,
        name: *const std::ffi::c_char,
    ) -> *mut std::ffi::c_void;
}

/// KiB that the C library's own heap serves now, asked of the C library itself whatever is
/// preloaded; -1 where it can't say.
pub fn glibc_kib() -> i64 {
    const RTLD_NOW: i32 = 2;
    // SAFETY: both names are strings of C; mallinfo2 takes nothing and returns this structure in
    // every glibc that has it. The program's own threads have ended.
    unsafe {
        let libc = dlopen(c"libc.so.6".as_ptr(), RTLD_NOW);
        if libc.is_null() {
            return -1;
        }
        let ask = dlsym(libc, c"mallinfo2".as_ptr());
        if ask.is_null() {
            return -1;
        }
        let ask: extern "C" fn() -> MallInfo = std::mem::transmute(ask);
        let info = ask();
        ((info.used_bytes + info.mapped_bytes) >> 10) as i64
    }
}
