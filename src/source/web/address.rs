//! Decides which hosts may be contacted: public addresses, and hosts that the user allowed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::url::WebUrl;
use crate::base::http::shown;

/// Host names of cloud metadata services, which hand out credentials to any process on the machine.
const METADATA_NAMES: [&str; 3] = ["metadata.google.internal", "metadata.goog", "instance-data"];

/// Addresses of cloud metadata services. They stay closed even inside an allowed network.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// IPv4 networks that are not public, from the IANA registry of special-purpose addresses: this network, private,
/// shared, loopback, link-local, protocol assignments, documentation, relays, benchmarks, multicast, reserved and
/// broadcast.
const CLOSED_V4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Parts of the global unicast range `2000::/3` that are not public: protocol assignments (including Teredo) and
/// documentation.
const CLOSED_V6: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// A host or network that may be contacted although it is not public, for intranets.
///
/// Written `wiki.corp`, `wiki.corp:8080`, `127.0.0.1:8080`, `[::1]:8080` or `10.1.0.0/16`. A host listed with ports may
/// be contacted at those ports only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AllowedHost {
    /// A host by name or IP address.
    Host {
        /// Lower case, without brackets.
        name: String,
        /// `None` for every port.
        port: Option<u16>,
    },
    Network(IpNet),
}

/// The text is not a host or network that can be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAllowedHostError {
    #[error(
        "`{0}` is neither a host nor a network (expected for example `wiki.corp`, `127.0.0.1:8080` or `10.1.0.0/16`)"
    )]
    Neither(String),
    #[error("`{0}` contains a wildcard")]
    Star(String),
    /// A network wider than [`WIDEST_V4`] or [`WIDEST_V6`].
    #[error("network `{0}` is too wide to be an intranet")]
    Wide(IpNet),
}

impl ParseAllowedHostError {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Neither(_) => "give the host without `http://` and path",
            Self::Star(_) => "list every host, or their network as `10.1.0.0/16`; public hosts need no entry",
            Self::Wide(_) => "the prefix must be at least `/8` (`/7` for IPv6); public hosts need no entry",
        }
        .to_owned()
    }
}

/// Shortest IPv4 prefix that can be allowed: that of `10.0.0.0/8`.
const WIDEST_V4: u8 = 8;

/// Shortest IPv6 prefix that can be allowed: that of `fc00::/7`.
const WIDEST_V6: u8 = 7;

/// IPv6 networks that embed all of IPv4, see [`embedded`]. Inside them the limit of [`WIDEST_V4`] applies.
const EMBEDDING: [(Ipv6Addr, u8); 3] = [
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
];

/// Returns whether a network is too wide to be an intranet.
fn is_wide(network: IpNet) -> bool {
    match network {
        IpNet::V4(network) => network.prefix_len() < WIDEST_V4,
        IpNet::V6(network) => {
            let is_about = |(start, bits): (Ipv6Addr, u8)| {
                let all = Ipv6Net::new_assert(start, bits);
                let touches = network.contains(&start) || all.contains(&network.addr());
                touches && network.prefix_len() < bits + WIDEST_V4
            };
            network.prefix_len() < WIDEST_V6 || EMBEDDING.into_iter().any(is_about)
        }
    }
}

impl FromStr for AllowedHost {
    type Err = ParseAllowedHostError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseAllowedHostError::Neither(shown(text));
        let text = text.trim();
        if text.contains('*') {
            return Err(ParseAllowedHostError::Star(shown(text)));
        }
        if text.contains('/') {
            let network: IpNet = text.parse().map_err(|_| wrong())?;
            return if is_wide(network) {
                Err(ParseAllowedHostError::Wide(network))
            } else {
                Ok(Self::Network(network))
            };
        }
        // The colons of an IPv6 address are not a port.
        let bracketed = if text.parse::<Ipv6Addr>().is_ok() { format!("[{text}]") } else { text.to_owned() };
        let has_port = bracketed.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        // As the host of an address, so that it is normalised like those it is compared with.
        let url: WebUrl = format!("http://{bracketed}/").parse().map_err(|_| wrong())?;
        if url.url().path() != "/" || url.url().query().is_some() || url.host().is_empty() {
            return Err(wrong());
        }
        Ok(Self::Host { name: url.host().to_owned(), port: has_port.then(|| url.port()) })
    }
}

/// Admits or refuses hosts.
#[derive(Clone, Debug, Default)]
pub(super) struct HostRules {
    allowed: Vec<AllowedHost>,
}

/// The host may not be contacted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Closed {
    #[error("`{0}` is not a public address")]
    Private(String),
    #[error("`{0}` is a metadata service, which is never contacted")]
    Metadata(String),
}

impl Closed {
    pub(super) fn host(&self) -> &str {
        let (Self::Private(host) | Self::Metadata(host)) = self;
        host
    }
}

impl HostRules {
    pub(super) fn new(allowed: Vec<AllowedHost>) -> Self {
        Self { allowed }
    }

    /// Checks an address before name resolution: IP addresses, metadata names, ports.
    ///
    /// A host name is checked again after resolution, see [`Resolve`]: a public name may resolve to a private address.
    pub(super) fn admit(&self, url: &WebUrl) -> Result<(), Closed> {
        let host = url.host();
        let number = host.parse::<IpAddr>().ok();
        if METADATA_NAMES.contains(&host) || number.is_some_and(is_metadata) {
            return Err(Closed::Metadata(host.to_owned()));
        }
        let mut ports = self.ports(host).peekable();
        let is_open = if ports.peek().is_some() {
            ports.any(|port| port.is_none_or(|port| port == url.port()))
        } else {
            number.is_none_or(|number| self.is_open(number))
        };
        if is_open { Ok(()) } else { Err(Closed::Private(host.to_owned())) }
    }

    /// Filters the resolved addresses of a host to those that may be contacted.
    fn admitted(&self, host: &str, addresses: impl Iterator<Item = std::net::SocketAddr>) -> Vec<std::net::SocketAddr> {
        // Ports are unknown here. `admit` has checked that of the request.
        let is_named = self.ports(host).next().is_some();
        let is_open = |number: IpAddr| !is_metadata(number) && (is_named || self.is_open(number));
        addresses.filter(|address| is_open(address.ip())).collect()
    }

    fn is_open(&self, number: IpAddr) -> bool {
        let is_inside = |allowed: &AllowedHost| matches!(allowed, AllowedHost::Network(net) if net.contains(&number));
        is_public(number) || self.allowed.iter().any(is_inside)
    }

    fn ports<'a>(&'a self, host: &'a str) -> impl Iterator<Item = Option<u16>> + 'a {
        self.allowed.iter().filter_map(move |allowed| match allowed {
            AllowedHost::Host { name, port } if name == host => Some(*port),
            AllowedHost::Host { .. } | AllowedHost::Network(_) => None,
        })
    }
}

impl Resolve for HostRules {
    fn resolve(&self, name: Name) -> Resolving {
        let gate = self.clone();
        Box::pin(async move {
            let host = name.as_str().to_ascii_lowercase();
            let host = host.trim_end_matches('.');
            // The client puts the port of the request in place of 0.
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let admitted = gate.admitted(host, found.iter().copied());
            if admitted.is_empty() {
                let has_metadata = found.iter().any(|found| is_metadata(found.ip()));
                let closed = if has_metadata { Closed::Metadata } else { Closed::Private };
                return Err(closed(host.to_owned()).into());
            }
            Ok(Box::new(admitted.into_iter()) as Addrs)
        })
    }
}

fn is_metadata(number: IpAddr) -> bool {
    let number = match number {
        IpAddr::V6(number) => embedded(number).map_or(IpAddr::V6(number), IpAddr::V4),
        number @ IpAddr::V4(_) => number,
    };
    METADATA.contains(&number)
}

pub(super) fn is_public(number: IpAddr) -> bool {
    match number {
        IpAddr::V4(number) => {
            !CLOSED_V4.iter().any(|(start, bits)| Ipv4Net::new_assert(*start, *bits).contains(&number))
        }
        IpAddr::V6(number) => match embedded(number) {
            Some(number) => is_public(IpAddr::V4(number)),
            None => {
                // Only `2000::/3` is assigned for public use, so the rest of IPv6 is closed without being listed.
                let is_in_use = number.segments()[0] & 0xe000 == 0x2000;
                is_in_use && !CLOSED_V6.iter().any(|(start, bits)| Ipv6Net::new_assert(*start, *bits).contains(&number))
            }
        },
    }
}

/// Returns the IPv4 address embedded in an IPv6 address: mapped, NAT64 or 6to4.
fn embedded(number: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = number.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(of(high, low))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn gate(allowed: &[&str]) -> HostRules {
        HostRules::new(allowed.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn admits(gate: &HostRules, url: &str) -> bool {
        gate.admit(&url.parse().unwrap()).is_ok()
    }

    #[test]
    fn addresses_that_are_not_the_open_web_are_refused() {
        let closed = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 127.255.0.9 169.254.169.254 \
                      169.254.0.1 172.16.0.1 172.31.255.255 192.0.0.8 192.0.2.1 192.88.99.1 192.168.1.1 \
                      198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.1.2.3 240.0.0.1 \
                      255.255.255.255 100.100.100.200";
        let disguised = "2130706433 0x7f000001 0177.0.0.1 127.1 0x7f.1 017700000001 ①②⑦.0.0.1 127.0.0.1. [::1] \
                         [::ffff:127.0.0.1] [::ffff:10.0.0.1] [::ffff:a9fe:a9fe] [::127.0.0.1] [2001:0:a00:1::] \
                         [2002:7f00:1::] [2002:a00:1::1] [64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::1]";
        let closed_ipv6 = "[::] [fc00::1] [fd00:ec2::254] [fe80::1] [fec0::1] [ff02::1] [2001:db8::1] [3fff::1] \
                           [2001::1] [100::1] [5f00::1] [4000::1]";
        let named = "metadata.google.internal METADATA.google.internal.";
        for host in [closed, disguised, closed_ipv6, named].into_iter().flat_map(str::split_whitespace) {
            assert!(!admits(&gate(&[]), &format!("http://{host}/latest/meta-data")), "{host}");
        }
    }

    #[test]
    fn addresses_of_the_open_web_are_admitted() {
        let open = "1.1.1.1 8.8.8.8 93.184.216.34 100.128.0.1 172.32.0.1 198.20.0.1 [2606:4700::1111] \
                    [2a00:1450:4001::1] [::ffff:8.8.8.8] [64:ff9b::808:808] [2002:808:808::1] example.org";
        for host in open.split_whitespace() {
            assert!(admits(&gate(&[]), &format!("https://{host}/")), "{host}");
        }
    }

    #[test]
    fn allowed_host_is_admitted_at_its_ports_and_a_network_at_all() {
        let open = gate(&["wiki.corp", "127.0.0.1:8080", "[::1]:80", "10.1.0.0/16", "169.254.0.0/16"]);
        for url in ["http://wiki.corp:9/", "http://127.0.0.1:8080/", "http://[::1]/", "http://10.1.2.3/"] {
            assert!(admits(&open, url), "{url}");
        }
        for url in ["http://127.0.0.1/", "http://127.0.0.2:8080/", "http://[::1]:81/", "http://10.2.0.1/"] {
            assert!(!admits(&open, url), "{url}");
        }
        for url in ["http://169.254.169.254/", "http://[::ffff:169.254.169.254]/", "http://metadata.google.internal/"] {
            assert!(!admits(&open, url), "{url}");
        }
    }

    #[test]
    fn name_is_judged_by_every_number_it_becomes() {
        let numbers = ["10.0.0.1:0", "8.8.8.8:0", "[fe80::1]:0", "169.254.169.254:0"].map(|text| text.parse().unwrap());
        let admitted = |gate: &HostRules, host: &str| gate.admitted(host, numbers.into_iter());
        assert_eq!(admitted(&gate(&[]), "example.org"), [numbers[1]]);
        assert_eq!(admitted(&gate(&["10.0.0.0/8"]), "example.org"), [numbers[0], numbers[1]]);
        assert_eq!(admitted(&gate(&["wiki.corp:80"]), "wiki.corp"), [numbers[0], numbers[1], numbers[2]]);
    }

    #[test]
    fn text_that_is_neither_host_nor_network_is_refused() {
        for text in ["", "a b", "10.0.0.0/33", "http://wiki.corp/", "wiki.corp/path", "me@wiki.corp", "wiki.corp?x"] {
            assert!(text.parse::<AllowedHost>().is_err(), "{text}");
        }
        let port = |text: &str| match text.parse().unwrap() {
            AllowedHost::Host { name, port } => (name, port),
            AllowedHost::Network(_) => panic!("a network"),
        };
        assert_eq!(port("Wiki.Corp:80"), ("wiki.corp".into(), Some(80)));
        assert_eq!(port("::1"), ("::1".into(), None));
    }

    #[test]
    fn entry_that_would_let_everything_through_is_none() {
        use ParseAllowedHostError as Error;
        for text in ["*", "*.com", "*.wiki.corp", "*:80"] {
            assert!(matches!(text.parse::<AllowedHost>(), Err(Error::Star(_))), "{text}");
        }
        for text in ["0.0.0.0/0", "128.0.0.0/1", "10.0.0.0/7", "::/0", "fc00::/6", "::/7", "::ffff:0:0/96", "2002::/16"]
        {
            assert!(matches!(text.parse::<AllowedHost>(), Err(Error::Wide(_))), "{text}");
        }
        for text in ["10.0.0.0/8", "192.168.0.0/16", "fc00::/7", "fe80::/10", "::1/128", "::ffff:10.0.0.0/104"] {
            assert!(text.parse::<AllowedHost>().is_ok(), "{text}");
        }
        let error = "https://me:sk-secret@wiki.corp/".parse::<AllowedHost>().unwrap_err();
        assert!(!error.to_string().contains("sk-secret"), "{error}");
    }

    proptest! {
        #[test]
        fn any_target_is_refused_or_has_an_open_address(target in ".{0,60}", scheme in "(https?:)?/{0,3}") {
            let page: WebUrl = "https://example.org/a".parse().unwrap();
            if let Ok(url) = page.join(&format!("{scheme}{target}"))
                && gate(&[]).admit(&url).is_ok()
            {
                prop_assert!(matches!(url.url().scheme(), "http" | "https"));
                prop_assert!(url.host().parse::<IpAddr>().map_or(true, is_public));
            }
        }

        #[test]
        fn any_number_is_refused_or_open(bits in any::<u32>(), dressed in 0..5_u8) {
            let number = Ipv4Addr::from(bits);
            let [a, b] = [bits >> 16, bits & 0xffff];
            let host = match dressed {
                0 => number.to_string(),
                1 => bits.to_string(),
                2 => format!("0x{bits:x}"),
                3 => format!("[::ffff:{a:x}:{b:x}]"),
                _ => format!("[2002:{a:x}:{b:x}::1]"),
            };
            let url: WebUrl = format!("http://{host}/").parse().unwrap();
            prop_assert_eq!(gate(&[]).admit(&url).is_ok(), is_public(IpAddr::V4(number)));
        }
    }
}
