//! Traits whose data the simulation's store does not keep.

/// Declares the trait of such queries, and with it that store's refusal of each.
macro_rules! absent_in_memory {
    (
        $(#[$doc:meta])*
        pub trait $name:ident {
            $(
                $(#[$about:meta])*
                async fn $query:ident(&self $(, $arg:ident: $kind:ty)* $(,)?) -> $answer:ty;
            )+
        }
    ) => {
        $(#[$doc])*
        #[async_trait::async_trait]
        pub trait $name: Send + Sync {
            $(
                $(#[$about])*
                async fn $query(&self $(, $arg: $kind)*) -> $answer;
            )+
        }

        #[cfg(feature = "simulation")]
        #[async_trait::async_trait]
        impl $name for $crate::store::memory::MemoryStore {
            $(
                async fn $query(&self $(, $arg: $kind)*) -> $answer {
                    let _ = ($($arg,)*);
                    $crate::store::memory::absent()
                }
            )+
        }
    };
}
pub(super) use absent_in_memory;
