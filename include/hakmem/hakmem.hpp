/* hakmem.hpp: hakmem for C++17's own interfaces to allocators.
 *
 *     std::vector<int, hakmem::allocator<int>> v;          // allocator of containers
 *     std::pmr::vector<int> w(hakmem::resource());         // polymorphic memory resource
 *
 * A program that runs under hakmem, or is linked with it, needs neither: operator new is hakmem's
 * already. They are for programs that keep another malloc and want hakmem for some of their data.
 *
 * Both are stateless and may be used from any thread; what one allocated any other may free, also
 * hak_free, free (where malloc is hakmem's) and operator delete. Both throw std::bad_alloc at once
 * where there is no memory: they do not call the new-handler. Without exceptions
 * (-fno-exceptions) they abort instead.
 */
#ifndef HAKMEM_HPP
#define HAKMEM_HPP

#include <hakmem/hakmem.h>

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <type_traits>

#if defined(__has_include)
#if __has_include(<memory_resource>)
#include <memory_resource>
#endif
#endif

namespace hakmem {

namespace detail {

/* What every block is aligned to. */
inline constexpr std::size_t block_alignment = 16;

[[noreturn]] inline void throw_bad_alloc()
{
#if defined(__cpp_exceptions)
    throw std::bad_alloc();
#else
    std::abort();
#endif
}

[[noreturn]] inline void throw_bad_array_new_length()
{
#if defined(__cpp_exceptions)
    throw std::bad_array_new_length();
#else
    std::abort();
#endif
}

inline void *allocate(std::size_t bytes, std::size_t alignment)
{
    void *block =
        alignment <= block_alignment ? hak_malloc(bytes) : hak_aligned_alloc(alignment, bytes);
    if (block == nullptr) {
        throw_bad_alloc();
    }
    return block;
}

inline void deallocate(void *block, std::size_t bytes, std::size_t alignment) noexcept
{
    if (alignment <= block_alignment) {
        hak_free_sized(block, bytes);
    } else {
        hak_free_aligned_sized(block, alignment, bytes);
    }
}

} // namespace detail

/* An allocator of standard containers ([allocator.requirements]). All are equal, so that containers
 * move, swap and splice by pointer. */
template <typename T>
class allocator {
  public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::true_type;

    constexpr allocator() noexcept = default;
    constexpr allocator(const allocator &) noexcept = default;
    template <typename U>
    constexpr allocator(const allocator<U> &) noexcept
    {
    }
    allocator &operator=(const allocator &) noexcept = default;

    /* Memory for `count` objects, aligned for T however strict that is. Not NULL for 0. Throws
     * std::bad_array_new_length where count * sizeof(T) is no possible size, std::bad_alloc where
     * there is no memory. */
    [[nodiscard]] T *allocate(size_type count)
    {
        if (count > max_count) {
            detail::throw_bad_array_new_length();
        }
        return static_cast<T *>(detail::allocate(count * sizeof(T), alignof(T)));
    }

    /* `count` is what it was allocated for. */
    void deallocate(T *objects, size_type count) noexcept
    {
        detail::deallocate(objects, count * sizeof(T), alignof(T));
    }

  private:
    static constexpr size_type max_count =
        static_cast<size_type>(std::numeric_limits<difference_type>::max()) / sizeof(T);
};

template <typename T, typename U>
constexpr bool operator==(const allocator<T> &, const allocator<U> &) noexcept
{
    return true;
}

template <typename T, typename U>
constexpr bool operator!=(const allocator<T> &, const allocator<U> &) noexcept
{
    return false;
}

#if defined(__cpp_lib_memory_resource)

/* A resource for std::pmr containers. All of them are equal. */
class memory_resource : public std::pmr::memory_resource {
  protected:
    /* Throws std::bad_alloc where there is no memory. `alignment` is a power of two. */
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return detail::allocate(bytes, alignment);
    }

    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override
    {
        detail::deallocate(block, bytes, alignment);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
#if defined(__cpp_rtti)
        return this == &other || dynamic_cast<const memory_resource *>(&other) != nullptr;
#else
        return this == &other;
#endif
    }
};

/* The resource of the process. It lives until the very end: objects with static storage may still
 * free into it in their destructors. */
inline memory_resource *resource() noexcept
{
    alignas(memory_resource) static unsigned char storage[sizeof(memory_resource)];
    static memory_resource *const instance = ::new (static_cast<void *>(storage)) memory_resource;
    return instance;
}

#endif

} // namespace hakmem

#endif
