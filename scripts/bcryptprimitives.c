/* The DLL that Rust programs take random bytes from, which wine 8 does not have. Its whole interface
   for them is this function; advapi32 has the same under another name. */
#include <windows.h>
#include <ntsecapi.h>

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length)
{
    return RtlGenRandom(data, (ULONG)length);
}
